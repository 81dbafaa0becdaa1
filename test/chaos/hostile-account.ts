/** An account that takes all it can, in every way; even so, a key never leads to two jobs. */
import { randomUUID } from 'node:crypto';
import { connect, type Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { submitTo } from '../../control-plane/core/test/support/replicas.ts';
import { type LoopbackSource, openSource } from '../../control-plane/http/test/loopback-source.ts';
import type { WireJob } from '../running-service.ts';
import type { Random } from '../support/random.ts';

/** One byte, often enough that the source never counts as silent. */
const DRIP_MS = 2000;
/** Slow submissions in a second; the account's bound of jobs in flight fills in about two minutes. */
const TARPIT_PAUSE_MS = 120;
const OTHER_PAUSE_MS = 1000;
/** Connections of each kind that it holds open. */
const SOCKETS_MAX = 40;
const REQUEST_TIMEOUT_MS = 15_000;

export interface HostileAccountOptions {
  readonly urls: readonly string[];
  readonly accountId: string;
  readonly apiKey: string;
  readonly random: Random;
  readonly picture: string;
}

export class HostileAccount {
  readonly accountId: string;
  readonly answers = new Map<string, number>();
  /** Events that must never happen; `stop` reports them. */
  readonly violations: string[] = [];
  readonly #options: HostileAccountOptions;
  #tarpit!: LoopbackSource;
  #receiver!: LoopbackSource;
  readonly #sockets = new Set<Socket>();
  readonly #links: string[] = [];
  readonly #ended = new AbortController();
  #loops: Promise<unknown> = Promise.resolve();
  #stopped: Promise<void> | undefined;

  private constructor(options: HostileAccountOptions) {
    this.accountId = options.accountId;
    this.#options = options;
  }

  static async start(options: HostileAccountOptions): Promise<HostileAccount> {
    const account = new HostileAccount(options);
    account.#tarpit = await openSource((request, response) => {
      request.resume();
      response.writeHead(200, { 'content-type': 'image/png', 'content-length': 10_000_000 });
      const drip = setInterval(() => response.write('x'), DRIP_MS);
      response.once('close', () => clearInterval(drip));
    });
    account.#receiver = await openSource(request => void request.resume());
    account.#loops = Promise.all([
      account.#repeat(TARPIT_PAUSE_MS, () => account.#submitSlowSource()),
      account.#repeat(OTHER_PAUSE_MS, () => account.#submitWithDeadReceiver()),
      account.#repeat(OTHER_PAUSE_MS, () => account.#raceOneKey()),
      account.#repeat(OTHER_PAUSE_MS / 10, async () => account.#holdUpload()),
      account.#repeat(OTHER_PAUSE_MS, async () => account.#holdDownload()),
    ]);
    return account;
  }

  /** Lets go of everything it holds; its jobs go on and end. Later calls wait for the first. */
  stop(): Promise<void> {
    this.#stopped ??= this.#stop();
    return this.#stopped;
  }

  async #stop(): Promise<void> {
    this.#ended.abort();
    await this.#tarpit[Symbol.asyncDispose]();
    await this.#receiver[Symbol.asyncDispose]();
    for (const socket of this.#sockets) socket.destroy();
    await this.#loops;
  }

  /** Writes the counts for a log: `slow source 202 x 812, …`. */
  inWords(): string {
    return [...this.answers]
      .toSorted(([a], [b]) => a.localeCompare(b))
      .map(([what, count]) => `${what} x ${count}`)
      .join(', ');
  }

  async #repeat(pauseMs: number, act: () => Promise<void>): Promise<void> {
    const { signal } = this.#ended;
    while (!signal.aborted) {
      await act();
      await delay(pauseMs, undefined, { signal }).catch(() => undefined);
    }
  }

  async #submitSlowSource(): Promise<void> {
    await this.#post('slow source', '/v1/matting/jobs', randomUUID(), {
      image_url: `${this.#tarpit.url}/${randomUUID()}`,
    });
  }

  async #submitWithDeadReceiver(): Promise<void> {
    const job = await this.#post('dead receiver', '/v1/matting', randomUUID(), {
      image_base64: this.#options.picture,
      callback_url: `${this.#receiver.url}/${randomUUID()}`,
      callback_secret: 'a secret that nobody will see',
    });
    if (job?.result !== undefined) this.#links.push(new URL(job.result.url).pathname);
    if (this.#links.length > SOCKETS_MAX) this.#links.shift();
  }

  async #raceOneKey(): Promise<void> {
    const key = randomUUID();
    const body = { image_base64: this.#options.picture };
    const jobs = await Promise.all(
      this.#options.urls.map(url => this.#post('raced key', '/v1/matting/jobs', key, body, url)),
    );
    const ids = new Set(jobs.flatMap(job => (job?.job_id === undefined ? [] : [job.job_id])));
    // A key is free again after a retryable failure, which takes longer than these two requests.
    if (ids.size > 1) this.violations.push(`${key} led to ${[...ids].join(' and ')}`);
  }

  #holdUpload(): void {
    this.#hold(
      [
        'POST /v1/matting HTTP/1.1',
        'host: hostile',
        `authorization: Bearer ${this.#options.apiKey}`,
        `idempotency-key: ${randomUUID()}`,
        'content-type: application/json',
        'content-length: 60000000',
        '',
        '{"',
      ].join('\r\n'),
    );
  }

  #holdDownload(): void {
    if (this.#links.length === 0) return;
    const place = this.#options.random.pick(this.#links);
    this.#hold(`GET ${place} HTTP/1.1\r\nhost: hostile\r\n\r\n`)?.pause();
  }

  #hold(bytes: string): Socket | undefined {
    if (this.#sockets.size >= 2 * SOCKETS_MAX) return undefined;
    const { hostname, port } = new URL(this.#options.random.pick(this.#options.urls));
    const socket = connect(Number(port), hostname);
    this.#sockets.add(socket);
    socket.once('close', () => this.#sockets.delete(socket));
    // The service dies, or ends it: another takes its place.
    socket.on('error', () => socket.destroy());
    socket.resume();
    socket.write(bytes);
    return socket;
  }

  /** The job that was named; undefined where none was, whatever the reason. */
  async #post(
    what: string,
    place: string,
    key: string,
    body: object,
    url = this.#options.random.pick(this.#options.urls),
  ): Promise<WireJob | undefined> {
    try {
      const signal = AbortSignal.any([AbortSignal.timeout(REQUEST_TIMEOUT_MS), this.#ended.signal]);
      const sent = { path: place, key, signal };
      const answer = await submitTo(url, this.#options.apiKey, body, sent);
      this.#count(`${what} ${answer.status}`);
      return (await answer.json()) as WireJob;
    } catch {
      // Killed under the request, too slow, or this account was stopped: it tries the next thing.
      this.#count(`${what} unanswered`);
      return undefined;
    }
  }

  #count(what: string): void {
    this.answers.set(what, (this.answers.get(what) ?? 0) + 1);
  }
}
