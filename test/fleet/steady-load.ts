/** Alternates clients of the last release and of this version. */
import assert from 'node:assert/strict';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import sharp from 'sharp';
import type { MattingClient } from '../../client/src/index.ts';
import type { Receiver } from '../../control-plane/core/test/receiver.ts';
import { at } from '../support/at.ts';
import type { InstalledVersion } from './installed-version.ts';

const OPEN_MAX = 24;
/** An outage fails the test long before. */
const GIVE_UP_MS = 180_000;
const POLL_MS = 50;

export interface LoadOptions {
  readonly baseUrl: string;
  readonly apiKey: string;
  readonly perSecond: number;
  readonly clients: readonly InstalledVersion[];
  /** For every second picture. */
  readonly callback?: { readonly receiver: Receiver; readonly secret: string };
  /** The next caller waits at this number, on machines slower than the pace. */
  readonly openMax?: number;
  readonly picture: (number: number) => Promise<Picture>;
}

export interface Picture {
  readonly file: Uint8Array;
  /** Rejects if it is not the cut-out. */
  readonly requireCutOut: (file: Uint8Array) => Promise<void>;
}

interface Done {
  readonly jobId: string;
  readonly told: boolean;
  readonly tookMs: number;
}

export class SteadyLoad {
  readonly done: Done[] = [];
  readonly failures: string[] = [];
  /** Callers that had to wait: the pace was not kept. */
  held = 0;
  retries = 0;
  readonly #options: LoadOptions;
  readonly #clients: readonly MattingClient[];
  readonly #open = new Set<Promise<void>>();
  readonly #over = new AbortController();
  readonly #pacing: Promise<void>;

  private constructor(options: LoadOptions, clients: readonly MattingClient[]) {
    this.#options = options;
    this.#clients = clients;
    this.#pacing = this.#pace();
  }

  static async start(options: LoadOptions): Promise<SteadyLoad> {
    const { baseUrl, apiKey } = options;
    const clients = await Promise.all(
      options.clients.map(async ({ root }) => {
        const file = pathToFileURL(path.join(root, 'client/src/index.ts')).href;
        const { MattingClient } = (await import(
          file
        )) as typeof import('../../client/src/index.ts');
        return new MattingClient({ baseUrl, apiKey });
      }),
    );
    return new SteadyLoad(options, clients);
  }

  /**
   * Waits for `count` more than are done or open.
   * @throws the callers' failure
   */
  async more(count: number): Promise<void> {
    const wanted = this.done.length + this.#open.size + count;
    while (this.failures.length === 0 && this.done.length < wanted) await delay(POLL_MS);
    this.requireNoFailure();
  }

  async finish(): Promise<void> {
    this.#over.abort();
    await this.#pacing;
    await Promise.all(this.#open);
    this.requireNoFailure();
  }

  requireNoFailure(): void {
    assert.deepEqual(this.failures, []);
  }

  summary(): string {
    const times = this.done.map(({ tookMs }) => tookMs).sort((one, other) => one - other);
    const share = (part: number) => Math.round(times[Math.floor(part * (times.length - 1))] ?? 0);
    return (
      `${this.done.length} pictures, ${this.failures.length} failures, ${this.retries} retries of the client, ` +
      `${this.held} held back; ` +
      `half took ${share(0.5)} ms, 99 of 100 ${share(0.99)} ms, the longest ${share(1)} ms`
    );
  }

  async #pace(): Promise<void> {
    const startedAtMs = performance.now();
    for (let number = 0; !this.#over.signal.aborted; number += 1) {
      const dueMs = startedAtMs + (number * 1000) / this.#options.perSecond;
      const waitMs = dueMs - performance.now();
      if (waitMs > 0) await delay(waitMs);
      if (this.#open.size >= (this.#options.openMax ?? OPEN_MAX)) {
        this.held += 1;
        await Promise.race(this.#open);
      }
      const call: Promise<void> = this.#call(number)
        .catch((error: Error) => this.#fail(`picture ${number}: ${error.stack}`))
        .finally(() => this.#open.delete(call));
      this.#open.add(call);
    }
  }

  async #call(number: number): Promise<void> {
    const startedAtMs = performance.now();
    const client = at(this.#clients, number % this.#clients.length);
    const { file: image, requireCutOut } = await this.#options.picture(number);
    const patience = {
      giveUpMs: GIVE_UP_MS,
      onRetry: () => {
        this.retries += 1;
      },
    };
    // Each client comes in each manner.
    const { callback } = this.#options;
    const told = callback !== undefined && Math.floor(number / this.#clients.length) % 2 === 1;
    if (told) {
      const { receiver, secret } = callback;
      const asked = { image, callback_url: receiver.url(), callback_secret: secret };
      const { job_id: jobId, result } = await client.run(asked, patience);
      const file: Uint8Array | { readonly bytes: Uint8Array } = await client.download(
        { result },
        patience,
      );
      // The client of 0.3.0 returns bytes only.
      await requireCutOut('bytes' in file ? file.bytes : file);
      this.#note({ jobId, told, startedAtMs });
      return;
    }
    const { jobId, bytes } = await client.cutOut({ image }, patience);
    await requireCutOut(bytes);
    this.#note({ jobId, told, startedAtMs });
  }

  #fail(failure: string): void {
    this.failures.push(failure);
    this.#over.abort();
  }

  #note({ startedAtMs, ...job }: { jobId: string; told: boolean; startedAtMs: number }): void {
    this.done.push({ ...job, tookMs: performance.now() - startedAtMs });
  }
}

/**
 * Uniform, with its own size and brightness, which identify its cut-out. Bright enough for a solid
 * matte: remove.bg's interface refuses pictures without a subject.
 */
export async function uniformPicture(number: number): Promise<Picture> {
  const [width, height] = [16 + (number % 97), 16 + (number % 89)];
  const brightness = 164 + ((number * 7) % 92);
  const background = { r: brightness, g: brightness, b: brightness };
  const file = await sharp({ create: { width, height, channels: 3, background } })
    .png()
    .toBuffer();
  return {
    file,
    requireCutOut: async cutOut => {
      const { data, info } = await sharp(cutOut).raw().toBuffer({ resolveWithObject: true });
      assert.deepEqual([info.width, info.height, info.channels], [width, height, 4]);
      const alpha = data.readUInt8(3);
      assert.ok(Math.abs(alpha - brightness) <= 2, `${alpha} for ${brightness}`);
    },
  };
}
