import { Metadata, type ServiceError, status } from '@grpc/grpc-js';
import test from 'ava';
import { ContractError, ERROR_CATALOGUE, type ErrorCode } from '#contract/errors.ts';
import {
  ERROR_CODE_TRAILER,
  fromServiceError,
  RETRYABLE_TRAILER,
  toStatus,
} from '#contract/grpc-status.ts';

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
  t.deepEqual(Object.keys(sent.metadata.getMap()), [ERROR_CODE_TRAILER, RETRYABLE_TRAILER]);
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

test('every code › of a node says by its retry rule whether another node may take it', t => {
  const elsewhere = (Object.keys(ERROR_CATALOGUE) as ErrorCode[])
    .filter(code => ERROR_CATALOGUE[code].retry === 'other-node')
    .map(code => ERROR_CATALOGUE[code].grpc);
  // Image faults and callers' own ends are never another node's business.
  for (const code of [status.INVALID_ARGUMENT, status.OUT_OF_RANGE, status.CANCELLED]) {
    t.false(elsewhere.includes(code));
  }
});

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

test('fromServiceError › keeps what was caught as its cause, without metadata too', t => {
  const error = serviceError(status.UNAVAILABLE, 'text');
  delete (error as Partial<ServiceError>).metadata;
  t.is(fromServiceError(error).cause, error);
});
