/** Names to addresses, for the guarded client: every address a name has, unjudged. */
import { lookup, Resolver } from 'node:dns/promises';

/** All addresses of a name, none if it has none; rejects where nobody could be asked. */
export type ResolveHost = (host: string, signal: AbortSignal) => Promise<readonly string[]>;

/** One question to one server; with two tries a dead server costs at most three times that. */
const DNS_TIMEOUT_MS = 1500;
const DNS_TRIES = 2;

/** "No such name" and "none of this kind" are answers, not failures. */
const NONE_CODES: ReadonlySet<unknown> = new Set(['ENOTFOUND', 'ENODATA', 'EBADNAME']);

function noneOrThrow(error: NodeJS.ErrnoException): string[] {
  if (NONE_CODES.has(error.code)) return [];
  throw error;
}

/** What was found; one kind of address is enough where the other could not be asked for. */
function foundOrThrow(outcomes: readonly PromiseSettledResult<string[]>[]): string[] {
  const found = outcomes.flatMap(outcome => (outcome.status === 'fulfilled' ? outcome.value : []));
  const failed = outcomes.find(outcome => outcome.status === 'rejected');
  if (found.length === 0 && failed !== undefined) throw failed.reason;
  return found;
}

/**
 * Asks the DNS itself: a slow or hostile name server then holds no thread of the pool that the file
 * system needs, and giving up cancels the question.
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

/** Asks the operating system, hosts file included: for trusted networks, whose names live there. */
export const resolveTrustedHost: ResolveHost = async host => {
  const addressesOf = async (): Promise<string[]> => {
    const answers = await lookup(host, { all: true, order: 'verbatim' });
    return answers.map(answer => answer.address);
  };
  return addressesOf().catch(noneOrThrow);
};
