/**
 * Tries every vector (argument: as outgoing-vectors.json) against the real guard, in a network
 * namespace where every address reaches this process, which counts. Prints a line of JSON.
 */
import { readFileSync } from 'node:fs';
import { createServer, type Server, type Socket } from 'node:net';
import { GuardedFetch } from '@matting/http/outgoing/guarded-fetch.ts';
import { GuardedPost } from '@matting/http/outgoing/guarded-post.ts';
import { OutgoingGuard } from '@matting/http/outgoing/outgoing-guard.ts';
import type { ResolveHost } from '@matting/http/outgoing/resolve-host.ts';
import { CallbackAddressCheck } from '../fetching/callback-check.ts';

interface Vectors {
  readonly literal: readonly { readonly url: string; readonly expect: string }[];
  readonly dnsAnswers: readonly string[];
  readonly positiveControls: readonly [string, ...string[]];
}

export interface ProbeReport {
  readonly tried: number;
  readonly passed: string[];
  readonly forbidden: string[];
  /** Connections by control address. */
  readonly controls: Record<string, { image: number; callback: number }>;
  /** With the guard off, to prove that counting works. */
  readonly countedUnguarded: number;
}

const PORTS = [22, 25, 80, 443, 3306, 6379, 8080, 10250];
const NEVER = new AbortController().signal;
const [, , vectorsFile = ''] = process.argv;
const vectors = JSON.parse(readFileSync(vectorsFile, 'utf8')) as Vectors;
const controls: ReadonlySet<string> = new Set(vectors.positiveControls);
const reached: string[] = [];
let location = '/';

function serve(socket: Socket): void {
  reached.push(String(socket.localAddress).replace(/^::ffff:(?=\d+\.)/, ''));
  socket.on('error', () => socket.destroy());
  socket.once('data', data => {
    const redirects = /^(GET|POST) \/redirect/.test(data.toString('latin1'));
    const head = redirects ? `302 Found\r\nlocation: ${location}` : '200 OK';
    socket.end(`HTTP/1.1 ${head}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n`, 'latin1');
  });
}

async function listen(port: number): Promise<Server> {
  const server = createServer(serve);
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, '::', resolve);
  });
  return server;
}

/** Lists of addresses by name; each look-up gets the next, the last one repeats. */
const names = new Map<string, readonly (readonly string[])[]>();
const asked = new Map<string, number>();

function nameOf(...turns: readonly (readonly string[])[]): string {
  const name = `n${names.size}.example.com`;
  names.set(name, turns);
  return name;
}

const resolveHost: ResolveHost = async host => {
  const turns = names.get(host);
  // Other names resolve to a control, as public names would in DNS.
  if (turns === undefined) return [vectors.positiveControls[0]];
  const turn = asked.get(host) ?? 0;
  asked.set(host, turn + 1);
  return turns[Math.min(turn, turns.length - 1)] ?? [];
};

const policy = { fetchPorts: [80, 443], allowPrivateAddresses: false, allowHttpCallbacks: true };
const limits = { connectMs: 2000, firstByteMs: 2000, totalMs: 2000 };
const guard = new OutgoingGuard({ policy, resolveHost });
const image = new GuardedFetch(guard, limits);
const callback = new GuardedPost(guard, policy, limits);
const check = new CallbackAddressCheck(guard);
const message = { accountId: 'account', headers: {}, body: Buffer.from('{}') };

const ASKER = { accountId: 'account', signal: NEVER, bytesMax: 1000 };
const fetchImage = (url: string) => image.get(url, ASKER, async () => undefined);
const notify = (url: string) => callback.post(url, message, NEVER);
const submitCallback = (url: string) => check.require(url, 'account');

let tried = 0;
const passed: string[] = [];

async function attempt(run: (url: string) => Promise<unknown>, url: string): Promise<boolean> {
  tried += 1;
  return run(url).then(
    () => true,
    () => false,
  );
}

async function expectRefused(run: (url: string) => Promise<unknown>, url: string): Promise<void> {
  if (await attempt(run, url)) passed.push(`${run.name} ${url}`);
}

async function tryLiterals(): Promise<void> {
  for (const { url, expect } of vectors.literal) {
    if (expect !== 'deny') {
      await attempt(fetchImage, url);
      await attempt(notify, url);
      continue;
    }
    await expectRefused(fetchImage, url);
    // Callbacks may use any port, so this is no vector for them.
    if (/^https?:\/\/[a-z.]*example\.com:\d+\/$/.test(url)) continue;
    await expectRefused(notify, url);
    await expectRefused(notify, url.replace(/^http:/, 'https:'));
    // Submission parses the text before it resolves the host.
    if (URL.canParse(url) && /^https?:/.test(url)) await attempt(submitCallback, url);
  }
}

async function tryAnswers(): Promise<void> {
  const [good] = vectors.positiveControls;
  for (const bad of vectors.dnsAnswers) {
    for (const answers of [[bad], [good, bad], [bad, good], [good, good, good, good, bad]]) {
      for (const run of [fetchImage, notify, submitCallback]) {
        await expectRefused(run, `http://${nameOf(answers)}/`);
      }
    }
    // Public at first, private at the next look-up (DNS rebinding).
    const flips = nameOf([good], [bad]);
    location = `http://${flips}/`;
    await expectRefused(fetchImage, `http://${flips}/redirect`);
    const later = nameOf([good], [bad]);
    await attempt(submitCallback, `http://${later}/`);
    await expectRefused(notify, `http://${later}/`);
  }
}

async function tryRedirects(): Promise<void> {
  const [good] = vectors.positiveControls;
  for (const { url, expect } of vectors.literal) {
    // Not a redirect elsewhere: no header line can carry it, or it leads back.
    if (expect !== 'deny' || !/^[\x21-\x7e]+$/.test(url)) continue;
    const target = URL.parse(url, `http://${good}/redirect`);
    if (target?.hostname === good || /^[a-z.]*example\.com$/.test(target?.hostname ?? '')) continue;
    location = url;
    await expectRefused(fetchImage, `http://${good}/redirect`);
    await attempt(notify, `http://${good}/redirect`);
  }
}

async function tryControls(): Promise<ProbeReport['controls']> {
  const report: ProbeReport['controls'] = {};
  for (const address of vectors.positiveControls) {
    const host = address.includes(':') ? `[${address}]` : address;
    const count = async (run: (url: string) => Promise<unknown>, url: string) => {
      const before = reached.length;
      await attempt(run, url);
      return reached.slice(before).filter(one => one === address).length;
    };
    report[address] = {
      image:
        (await count(fetchImage, `http://${host}/`)) +
        (await count(fetchImage, `http://${nameOf([address])}/`)),
      callback:
        (await count(notify, `http://${host}/`)) +
        (await count(notify, `http://${nameOf([address])}/`)),
    };
  }
  return report;
}

/** Repeats the connections without the guard, so that a zero above means something. */
async function countUnguarded(): Promise<number> {
  const open = new OutgoingGuard({ policy: { ...policy, allowPrivateAddresses: true } });
  const fetch = new GuardedFetch(open, limits);
  const before = reached.length;
  for (const host of ['127.0.0.1', '10.0.0.1', '169.254.169.254', '[fd00:ec2::254]', '[::1]']) {
    await fetch.get(`http://${host}/`, ASKER, async () => undefined);
  }
  return reached.slice(before).filter(address => !controls.has(address)).length;
}

const servers: Server[] = [];
for (const port of PORTS) servers.push(await listen(port));
await tryLiterals();
await tryAnswers();
await tryRedirects();
const reachedControls = await tryControls();
const forbidden = reached.filter(address => !controls.has(address));
const report: ProbeReport = {
  tried,
  passed,
  forbidden,
  controls: reachedControls,
  countedUnguarded: await countUnguarded(),
};
process.stdout.write(`${JSON.stringify(report)}\n`);
for (const server of servers) server.close();
