import { ContractError, type ErrorCode } from '@matting/proto/contract/errors.ts';
import test from 'ava';
import { type AttemptOutcome, verdictOn } from './attempt-outcome.ts';

const OWN = { ofOther: false };
const OTHER = { ofOther: true };

function lost(code: ErrorCode): AttemptOutcome {
  return { kind: 'lost', withProcess: true, error: new ContractError(code, 'a detail') };
}

test('engines of a model that a job names say nothing of the node, all else does', t => {
  const fault: AttemptOutcome = {
    kind: 'node-fault',
    error: new ContractError('NODE_FAULT', 'The model could not be loaded.'),
  };
  for (const outcome of [lost('ENGINE_LOST'), fault]) {
    t.is(verdictOn(outcome, OWN), 'fault');
    t.is(verdictOn(outcome, OTHER), undefined);
  }
  // The machine, the connection, or something that every image needs.
  for (const code of ['NODE_UNAVAILABLE', 'PICTURE_WORKER_LOST'] as const) {
    for (const job of [OWN, OTHER]) t.is(verdictOn(lost(code), job), 'fault', code);
  }
});

test('a picture that is at fault speaks for the node', t => {
  const error = new ContractError('PROCESSING_FAILED', 'The model cannot process this image.');
  for (const job of [OWN, OTHER]) t.is(verdictOn({ kind: 'image-fault', error }, job), 'well');
});
