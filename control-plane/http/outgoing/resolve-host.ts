/** Resolves names of callers' URLs, within bounds. The callers check the addresses. */
import { lookup, Resolver } from 'node:dns/promises';
import { addAbortListener } from 'node:events';
import { readFile, stat } from 'node:fs/promises';
import { isIP } from 'node:net';
import { Semaphore } from '@matting/program/semaphore.ts';

/** Possibly none. Rejects if no server answered. */
export type ResolveHost = (
  host: string,
  signal: AbortSignal,
  accountId: string,
) => Promise<readonly string[]>;

/** For one query to one server. */
const DNS_TIMEOUT_MS = 1500;
const DNS_TRIES = 2;
/** Some servers never answer AAAA. */
const AAAA_GRACE_MS = 500;
/** Longer, since more machines have only IPv4: time to resend a lost packet. */
const A_GRACE_MS = 2000;

/** More than all downloads and notifications. */
const LOOKUPS_WAITING_MAX = 512;

/** "No such name" and "no address of this kind" are answers, not failures. */
const NONE_CODES: ReadonlySet<unknown> = new Set(['ENOTFOUND', 'ENODATA', 'EBADNAME']);

function noneOrThrow(error: NodeJS.ErrnoException): string[] {
  if (NONE_CODES.has(error.code)) return [];
  throw error;
}

/** One kind of address is enough if the query for the other failed. */
function foundOrThrow(outcomes: readonly PromiseSettledResult<string[]>[]): string[] {
  const found = outcomes.flatMap(outcome => (outcome.status === 'fulfilled' ? outcome.value : []));
  const failed = outcomes.find(outcome => outcome.status === 'rejected');
  if (found.length === 0 && failed !== undefined) throw failed.reason;
  return found;
}

/** Never resolves if the query finds nothing. */
function graceAfter(query: Promise<string[]>, graceMs: number): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const wait = (found: string[]) => found.length > 0 && setTimeout(resolve, graceMs).unref();
  query.then(wait, () => undefined);
  return promise;
}

/**
 * Queries the DNS directly, so that a slow or hostile name server holds no thread of the pool that
 * the file system needs, and an abort cancels the query.
 * @param servers `<address>:<port>` each; default: the system's
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
 * Uses the operating system's whole configuration. Its look-up cannot be cancelled: a dead server
 * holds a thread of libuv's pool as long as `resolv.conf` says. So accounts share the threads, and
 * names wait here, where a wait can be cancelled.
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

function hostsOf(file: string): () => Promise<Hosts> {
  let read: { readonly mtimeMs: number; readonly hosts: Hosts } | undefined;
  return async () => {
    // Some systems have no such file.
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

/** Codes of a server that knows no such name. Others do not answer at all. */
const ANSWERED_CODES: ReadonlySet<unknown> = new Set(['ESERVFAIL', 'EREFUSED', 'ENOTIMP']);

interface InnerResolverOptions {
  readonly system: ResolveHost;
  readonly dns?: ResolveHost;
  readonly hostsFile?: string;
}

/**
 * For names of allowed networks, which need the hosts file or a search list. It tries the DNS
 * before the system, which holds a thread.
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
