/** What callers of any kind of storage are told: the operator must act, the caller may retry. */
import { ContractError } from '#contract/errors.ts';

/** SERVICE_UNAVAILABLE, with the store's own error as cause: it is logged, and never answered. */
export function unwritable(cause: unknown): ContractError {
  return unavailable('the storage cannot be written at the moment', cause);
}

/** The same of reading. */
export function unreadable(cause: unknown): ContractError {
  return unavailable('the storage cannot be read at the moment', cause);
}

function unavailable(detail: string, cause: unknown): ContractError {
  return new ContractError('SERVICE_UNAVAILABLE', detail, { cause });
}
