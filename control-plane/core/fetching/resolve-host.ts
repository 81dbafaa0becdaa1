/** Resolves names for the guarded client: every address of a name, not checked yet. */
import { lookup, Resolver } from 'node:dns/promises';
import { Semaphore } from '#program/semaphore.ts';

/**
 * All addresses of a name, possibly none; rejects where no server answered.
 * @param accountId who asks
 */
export type ResolveHost = (
  host: string,
  signal: AbortSignal,
  accountId: string,
) => Promise<readonly string[]>;

/** Time for one query to one server; with two tries a dead server costs at most three times that. */
const DNS_TIMEOUT_MS = 1500;
const DNS_TRIES = 2;

/**
 * Names that may wait for the system's resolver: more than all downloads and notifications that can
 * be under way, so that none is refused here. Each waits until its signal aborts.
 */
const LOOKUPS_WAITING_MAX = 512;

/** "No such name" and "none of this kind" are answers, not failures. */
const NONE_CODES: ReadonlySet<unknown> = new Set(['ENOTFOUND', 'ENODATA', 'EBADNAME']);

function noneOrThrow(error: NodeJS.ErrnoException): string[] {
  if (NONE_CODES.has(error.code)) return [];
  throw error;
}

/** The addresses found; one kind is enough where the query for the other failed. */
function foundOrThrow(outcomes: readonly PromiseSettledResult<string[]>[]): string[] {
  const found = outcomes.flatMap(outcome => (outcome.status === 'fulfilled' ? outcome.value : []));
  const failed = outcomes.find(outcome => outcome.status === 'rejected');
  if (found.length === 0 && failed !== undefined) throw failed.reason;
  return found;
}

/**
 * Queries the DNS directly: a slow or hostile name server then holds no thread of the pool that the
 * file system needs, and giving up cancels the query.
 * @param servers `<address>:<port>` each; the system's where absent
 */
export function createPublicResolver(servers?: readonly string[]): ResolveHost {
  return async (host, signal) => {
    const resolver = new Resolver({ timeout: DNS_TIMEOUT_MS, tries: DNS_TRIES });
    if (servers !== undefined) resolver.setServers(servers);
    const cancel = (): void => resolver.cancel();
    signal.addEventListener('abort', cancel, { once: true });
    try {
      const v4 = resolver.resolve4(host).catch(noneOrThrow);
      const v6 = resolver.resolve6(host).catch(noneOrThrow);
      return foundOrThrow(await Promise.allSettled([v4, v6]));
    } finally {
      signal.removeEventListener('abort', cancel);
    }
  };
}

/**
 * Asks the operating system, hosts file and all that it is configured to ask included: for trusted
 * networks, whose names are there. The system's look-up cannot be cancelled, so that a name of a
 * dead server holds its thread as long as `resolv.conf` says; accounts share the threads, and names
 * wait here, where a wait can be cancelled, not in the queue of the pool.
 * @param lookupsMax look-ups at once: each holds a thread of libuv's pool until the system gives up
 */
export function createTrustedResolver(
  lookupsMax: number,
  lookupAll: (host: string) => Promise<string[]> = lookupAllOfSystem,
): ResolveHost {
  const slots = new Semaphore({
    max: lookupsMax,
    waitingMax: LOOKUPS_WAITING_MAX,
    refusal: () => new Error('too many names wait to be resolved'),
  });
  return (host, signal, accountId) =>
    slots.run({ key: accountId, signal }, () => lookupAll(host).catch(noneOrThrow));
}

async function lookupAllOfSystem(host: string): Promise<string[]> {
  const answers = await lookup(host, { all: true, order: 'verbatim' });
  return answers.map(answer => answer.address);
}
