/**
 * The owner of the current request, kept over awaits: the account if it is known, otherwise the
 * caller's key, link, session or address. The database shares its slots by it. Work outside of
 * requests has no owner; start it by `outsideRequests` if a request may trigger it.
 */
import { AsyncLocalStorage } from 'node:async_hooks';

type RequestOwner =
  | { readonly accountId: string }
  /** A secret, or an address, of which the network counts. */
  | { readonly shows: string };

const served = new AsyncLocalStorage<{ owner: RequestOwner } | undefined>();

export function requestOwner(): RequestOwner | undefined {
  return served.getStore()?.owner;
}

export function serveRequest<T>(owner: RequestOwner, work: () => T): T {
  return served.run({ owner }, work);
}

/** Runs `work`, and everything that it starts, without an owner. */
export function outsideRequests<T>(work: () => T): T {
  return served.getStore() === undefined ? work() : served.run(undefined, work);
}

export function noteRequestAccount(accountId: string): void {
  const request = served.getStore();
  if (request !== undefined) request.owner = { accountId };
}

/** Until the account is known, the request belongs to the holder of this secret. */
export function noteRequestSecret(secret: string): void {
  const request = served.getStore();
  if (request !== undefined && 'shows' in request.owner) request.owner = { shows: secret };
}
