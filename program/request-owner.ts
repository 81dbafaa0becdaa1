/**
 * Owner of the request that this code serves, kept over awaits by Node: the account, once it is
 * known, before that the caller's key, link or session, or the address it comes from. The public
 * port begins every request so; the database shares what it takes at once by it. Work that no
 * request waits for has no owner, and is begun by `outsideRequests` where a request may begin it.
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

/** Runs `work`, and all that follows from it, as what no request waits for. */
export function outsideRequests<T>(work: () => T): T {
  return served.getStore() === undefined ? work() : served.run(undefined, work);
}

/** The request belongs to the account from now on. */
export function noteRequestAccount(accountId: string): void {
  const request = served.getStore();
  if (request !== undefined) request.owner = { accountId };
}

/** While its account is not known, the request is of whoever has this secret. */
export function noteRequestSecret(secret: string): void {
  const request = served.getStore();
  if (request !== undefined && 'shows' in request.owner) request.owner = { shows: secret };
}
