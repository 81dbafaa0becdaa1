import { readFileSync } from 'node:fs';
import { Metadata, type ServiceError, status } from '@grpc/grpc-js';
import test from 'ava';
import type { StageTimings as ProtoTimings } from '../../gen/matting/v1/matte_service.ts';
import { ContractError, ERROR_CATALOGUE, type ErrorCode } from '../errors.ts';
import { ERROR_CODE_TRAILER, fromServiceError, toStatus } from '../grpc-status.ts';
import { STAGES, type StageTimings, timesByStage } from '../stages.ts';

function serviceError(code: status, details: string, metadata?: Metadata): ServiceError {
  return Object.assign(new Error(details), { code, details, metadata: metadata ?? new Metadata() });
}

test('toStatus › tells nothing of an unknown error', t => {
  for (const thrown of [new Error('/a/path of the machine'), 'text', undefined, null]) {
    const { code, details, metadata } = toStatus(thrown);
    t.is(code, status.INTERNAL);
    t.is(details, 'internal error');
    t.deepEqual(metadata.get(ERROR_CODE_TRAILER), ['NODE_FAULT']);
  }
});

test('toStatus › does not show a cause', t => {
  const cause = new Error('/a/path of the machine');
  const sent = toStatus(new ContractError('ENGINE_LOST', 'the engine died', { cause }));
  t.is(sent.details, 'the engine died');
  t.deepEqual(Object.keys(sent.metadata.getMap()), [ERROR_CODE_TRAILER, 'matting-retryable']);
});

for (const code of Object.keys(ERROR_CATALOGUE) as ErrorCode[]) {
  test(`every code › ${code} comes back as it was`, t => {
    for (const retryable of [true, false, undefined]) {
      const sent = new ContractError(code, 'what happened', { retryable });
      const { code: number, details, metadata } = toStatus(sent);
      t.is(number, ERROR_CATALOGUE[code].grpc);
      t.not(number, status.OK);
      const got = fromServiceError(serviceError(number, details, metadata));
      t.deepEqual(
        [got.code, got.message, got.retryable],
        [sent.code, sent.message, sent.retryable],
      );
    }
  });
}

const bare: [status, ErrorCode][] = [
  [status.CANCELLED, 'CALL_CANCELLED'],
  [status.DEADLINE_EXCEEDED, 'CALL_DEADLINE_EXCEEDED'],
  [status.UNAVAILABLE, 'NODE_UNAVAILABLE'],
  [status.UNAUTHENTICATED, 'INVALID_NODE_TOKEN'],
  [status.UNIMPLEMENTED, 'NODE_INCAPABLE'],
  [status.INTERNAL, 'NODE_FAULT'],
  [status.UNKNOWN, 'NODE_FAULT'],
  [status.RESOURCE_EXHAUSTED, 'NODE_FAULT'],
];
for (const [code, expected] of bare) {
  test(`fromServiceError › reads a bare ${status[code]} as ${expected}`, t => {
    t.is(fromServiceError(serviceError(code, 'text')).code, expected);
  });
}

test('fromServiceError › does not believe a code that it does not know', t => {
  const metadata = new Metadata();
  metadata.set(ERROR_CODE_TRAILER, 'MADE_UP');
  const got = fromServiceError(serviceError(status.UNAVAILABLE, 'text', metadata));
  t.is(got.code, 'NODE_UNAVAILABLE');
});

test('fromServiceError › takes a code of the future that blames the request for a fault of the image', t => {
  const decoded = (code: status, retryable: string) => {
    const metadata = new Metadata();
    metadata.set(ERROR_CODE_TRAILER, 'IMAGE_TOO_SMALL');
    metadata.set('matting-retryable', retryable);
    const got = fromServiceError(serviceError(code, 'too small', metadata));
    return [got.code, got.retryable, got.message];
  };
  const ofImage = ['PROCESSING_FAILED', false, 'too small'];
  t.deepEqual(decoded(status.INVALID_ARGUMENT, 'false'), ofImage);
  t.deepEqual(decoded(status.OUT_OF_RANGE, 'false'), ofImage);
  t.is(decoded(status.INVALID_ARGUMENT, 'true')[0], 'NODE_FAULT');
  t.is(decoded(status.INTERNAL, 'false')[0], 'NODE_FAULT');
  // A status without our code comes from the transport or a proxy.
  t.is(fromServiceError(serviceError(status.INVALID_ARGUMENT, 'x')).code, 'NODE_FAULT');
});

test('fromServiceError › keeps what was caught as its cause, without metadata too', t => {
  const error = serviceError(status.UNAVAILABLE, 'text');
  delete (error as Partial<ServiceError>).metadata;
  t.is(fromServiceError(error).cause, error);
});

const PROTO = new URL('../../matting/v1/matte_service.proto', import.meta.url);

test('stages › the stages are the fields of StageTimings in the proto file', t => {
  const [, message = ''] =
    /message StageTimings \{([^}]*)\}/.exec(readFileSync(PROTO, 'utf8')) ?? [];
  const fields = [...message.matchAll(/^ {2}double (\w+) = /gm)].map(([, field]) => field);
  t.deepEqual(
    Object.keys(STAGES)
      .map(stage => `${stage}_ms`)
      .sort(),
    fields.sort(),
  );
});

test('stages › times come by the names of their stages, in the order of the stages', t => {
  const timings: StageTimings & ProtoTimings = {
    sendMs: 12,
    encodeMs: 11,
    finishMs: 10,
    refineMs: 9,
    cropRunMs: 8,
    extraRunMs: 7,
    secondLookMs: 6,
    inferMs: 5,
    engineWaitMs: 4,
    decodeMs: 3,
    workerWaitMs: 2,
    receiveMs: 1,
  };
  const times = timesByStage(timings);
  t.deepEqual(
    times.map(([, ms]) => ms),
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12],
  );
  t.deepEqual(
    times.map(([stage]) => stage),
    Object.keys(STAGES) as (typeof times)[number][0][],
  );
  const unfinished = timesByStage({ ...timings, finishMs: 0, inferMs: 0 });
  t.deepEqual(
    unfinished.map(([stage]) => stage).filter(stage => stage === 'finish' || stage === 'infer'),
    ['infer'],
    'finishing has a time only where it was asked for',
  );
});
