import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Metadata, type ServiceError, status } from '@grpc/grpc-js';
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

describe('toStatus', () => {
  it('tells nothing of an unknown error', () => {
    for (const thrown of [new Error('/a/path of the machine'), 'text', undefined, null]) {
      const { code, details, metadata } = toStatus(thrown);
      assert.equal(code, status.INTERNAL);
      assert.equal(details, 'internal error');
      assert.deepEqual(metadata.get(ERROR_CODE_TRAILER), ['NODE_FAULT']);
    }
  });

  it('does not show a cause', () => {
    const cause = new Error('/a/path of the machine');
    const sent = toStatus(new ContractError('ENGINE_LOST', 'the engine died', { cause }));
    assert.equal(sent.details, 'the engine died');
    assert.deepEqual(Object.keys(sent.metadata.getMap()), [ERROR_CODE_TRAILER, RETRYABLE_TRAILER]);
  });
});

describe('every code', () => {
  for (const code of Object.keys(ERROR_CATALOGUE) as ErrorCode[]) {
    it(`${code} comes back as it was`, () => {
      for (const retryable of [true, false, undefined]) {
        const sent = new ContractError(code, 'what happened', { retryable });
        const { code: number, details, metadata } = toStatus(sent);
        assert.equal(number, ERROR_CATALOGUE[code].grpc);
        assert.notEqual(number, status.OK);
        const got = fromServiceError(serviceError(number, details, metadata));
        assert.deepEqual(
          [got.code, got.message, got.retryable],
          [sent.code, sent.message, sent.retryable],
        );
      }
    });
  }

  it('of a node says by its retry rule whether another node may take it', () => {
    const elsewhere = (Object.keys(ERROR_CATALOGUE) as ErrorCode[])
      .filter(code => ERROR_CATALOGUE[code].retry === 'other-node')
      .map(code => ERROR_CATALOGUE[code].grpc);
    // Image faults and callers' own ends are never another node's business.
    for (const code of [status.INVALID_ARGUMENT, status.OUT_OF_RANGE, status.CANCELLED]) {
      assert.ok(!elsewhere.includes(code));
    }
  });
});

describe('fromServiceError', () => {
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
    it(`reads a bare ${status[code]} as ${expected}`, () => {
      assert.equal(fromServiceError(serviceError(code, 'text')).code, expected);
    });
  }

  it('does not believe a code that it does not know', () => {
    const metadata = new Metadata();
    metadata.set(ERROR_CODE_TRAILER, 'MADE_UP');
    const got = fromServiceError(serviceError(status.UNAVAILABLE, 'text', metadata));
    assert.equal(got.code, 'NODE_UNAVAILABLE');
  });

  it('keeps what was caught as its cause, without metadata too', () => {
    const error = serviceError(status.UNAVAILABLE, 'text');
    delete (error as Partial<ServiceError>).metadata;
    assert.equal(fromServiceError(error).cause, error);
  });
});
