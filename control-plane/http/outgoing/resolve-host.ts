/** The ways from the name in a caller's URL to its addresses, each bounded. None of them checks one. */
import { lookup, Resolver } from 'node:dns/promises';
import { addAbortListener } from 'node:events';
import { readFile, stat } from 'node:fs/promises';
import { isIP } from 'node:net';
import { Semaphore } from '@matting/program/semaphore.ts';

/** All addresses of a name, possibly none; rejects where no server answered. */
export type ResolveHost = (
  host: string,
  signal: AbortSignal,
  accountId: string,
) => Promise<readonly string[]>;

/** Time for one query to one server; with two tries a dead server costs at most three times that. */
const DNS_TIMEOUT_MS = 1500;
const DNS_TRIES = 2;
/** For the other kind of address once one is there: servers exist that never answer AAAA. */
const AAAA_GRACE_MS = 500;
/** Longer, since more machines have IPv4 alone: a lost packet was sent again by then. */
const A_GRACE_MS = 2000;

/** Names that may wait for the system's resolver: more than all downloads and notifications. */
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

/** Ends `graceMs` after the query found something; never if it finds nothing. */
function graceAfter(query: Promise<string[]>, graceMs: number): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const wait = (found: string[]) => found.length > 0 && setTimeout(resolve, graceMs).unref();
  query.then(wait, () => undefined);
  return promise;
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
    using _cancelling = addAbortListener(signal, () => resolver.cancel());
    const v4 = resolver.resolve4(host).catch(noneOrThrow);
    const v6 = resolver.resolve6(host).catch(noneOrThrow);
    const both = Promise.allSettled([v4, v6]);
    await Promise.race([both, graceAfter(v4, AAAA_GRACE_MS), graceAfter(v6, A_GRACE_MS)]);
    resolver.cancel();
    return foundOrThrow(await both);
  };
}

/**
 * Asks the operating system, with all that it is configured to ask. Its look-up cannot be
 * cancelled, so that a name of a dead server holds its thread as long as `resolv.conf` says;
 * accounts share the threads, and names wait here, where a wait can be cancelled, not in the queue
 * of the pool.
 * @param lookupsMax look-ups at once: each holds a thread of libuv's pool until the system gives up
 */
export function createSystemResolver(
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

const HOSTS_FILE = '/etc/hosts';
/** A larger file, such as a list of blocked sites, is left to the system's resolver. */
const HOSTS_BYTES_MAX = 4_194_304;

type Hosts = ReadonlyMap<string, readonly string[]>;

/** Reads the file again when it has changed. */
function hostsOf(file: string): () => Promise<Hosts> {
  let read: { readonly mtimeMs: number; readonly hosts: Hosts } | undefined;
  return async () => {
    // A system without the file has no names in it.
    const { mtimeMs = 0, size = 0 } = (await stat(file).catch(() => undefined)) ?? {};
    if (read?.mtimeMs === mtimeMs) return read.hosts;
    const text = size === 0 || size > HOSTS_BYTES_MAX ? '' : await readFile(file, 'utf8');
    read = { mtimeMs, hosts: parseHosts(text) };
    return read.hosts;
  };
}

function parseHosts(text: string): Hosts {
  const hosts = new Map<string, string[]>();
  for (const line of text.split('\n')) {
    const [address = '', ...names] = line.replace(/#.*/, '').trim().split(/\s+/);
    if (isIP(address) === 0) continue;
    for (const name of names) {
      const key = name.toLowerCase();
      hosts.set(key, [...(hosts.get(key) ?? []), address]);
    }
  }
  return hosts;
}

/** A server that has no such name says so by one of these, too; others do not answer at all. */
const ANSWERED_CODES: ReadonlySet<unknown> = new Set(['ESERVFAIL', 'EREFUSED', 'ENOTIMP']);

interface InnerResolverOptions {
  readonly system: ResolveHost;
  readonly dns?: ResolveHost;
  readonly hostsFile?: string;
}

/**
 * For networks that the operator allowed, whose names are in the hosts file, or found by a search
 * list. The DNS comes before the system, which holds a thread.
 */
export function createInnerResolver({
  system,
  dns = createPublicResolver(),
  hostsFile = HOSTS_FILE,
}: InnerResolverOptions): ResolveHost {
  const readHosts = hostsOf(hostsFile);
  return async (host, signal, accountId) => {
    const listed = (await readHosts()).get(host);
    if (listed !== undefined) return listed;
    const found = await dns(host, signal, accountId).catch((error: NodeJS.ErrnoException) => {
      if (ANSWERED_CODES.has(error.code)) return [];
      throw error;
    });
    return found.length > 0 ? found : await system(host, signal, accountId);
  };
}
