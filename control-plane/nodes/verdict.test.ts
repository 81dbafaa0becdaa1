import { ContractError, type ErrorCode } from '@matting/proto/contract/errors.ts';
import test from 'ava';
import { type AttemptOutcome, verdictOn } from './attempt-outcome.ts';

function lost(code: ErrorCode): AttemptOutcome {
  return { kind: 'lost', withProcess: true, error: new ContractError(code, 'a detail') };
}

test('engines, connections and what every image needs speak against the node', t => {
  const fault: AttemptOutcome = {
    kind: 'node-fault',
    error: new ContractError('NODE_FAULT', 'The model could not be loaded.'),
  };
  for (const outcome of [lost('ENGINE_LOST'), fault]) {
    t.is(verdictOn(outcome), 'fault');
  }
  for (const code of ['NODE_UNAVAILABLE', 'PICTURE_WORKER_LOST'] as const) {
    t.is(verdictOn(lost(code)), 'fault', code);
  }
});

test('a picture that is at fault speaks for the node', t => {
  const error = new ContractError('PROCESSING_FAILED', 'The model cannot process this image.');
  t.is(verdictOn({ kind: 'image-fault', error }), 'well');
});
