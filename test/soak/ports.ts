/**
 * The ports that callers and strangers reach, in a process of their own, so that its memory is
 * theirs: a node's gRPC port over fake pools, and the public port with a result behind links.
 */
import { type ChildProcess, fork } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { imageBody, openTestApp } from '../../control-plane/test/support/test-app.ts';
import { openTestNode } from '../../inference-node/test/grpc/test-node.ts';

/** What the process tells its parent. */
interface Places {
  readonly node: number;
  readonly rest: number;
  /** The fleet's token. */
  readonly nodeToken: string;
  readonly apiKey: string;
  /** Paths of result links, each of another job. */
  readonly links: readonly string[];
}

const LINKS = 40;
const RESULT_BYTES = 8 * 1024 * 1024;
const MANY = 1_000_000_000;

export class Ports {
  readonly places: Places;
  readonly #child: ChildProcess;

  private constructor(child: ChildProcess, places: Places) {
    this.#child = child;
    this.places = places;
  }

  static async open(): Promise<Ports> {
    const child = fork(import.meta.filename);
    const [places] = (await once(child, 'message')) as [Places];
    return new Ports(child, places);
  }

  async residentBytes(): Promise<number> {
    this.#child.send('memory');
    const [bytes] = (await once(this.#child, 'message')) as [number];
    return bytes;
  }

  async close(): Promise<void> {
    const exited = once(this.#child, 'exit');
    this.#child.send('end');
    await exited;
  }
}

async function serve(): Promise<void> {
  const nodeToken = randomUUID();
  const node = await openTestNode({ token: nodeToken });
  const app = await openTestApp({
    credits: MANY,
    jobsInFlightMax: MANY,
    submissionsPerMinute: MANY,
  });
  await app.app.listen({ port: 0, host: '127.0.0.1' });
  const links: string[] = [];
  for (let count = 0; count < LINKS; count += 1) {
    const job = await app.post('/v1/matting/jobs', imageBody());
    const { token } = await app.succeedJob(job.json().job_id, Buffer.alloc(RESULT_BYTES, 1));
    links.push(`/v1/results/${token}`);
  }
  process.on('message', async message => {
    if (message === 'memory') process.send?.(process.memoryUsage.rss());
    if (message !== 'end') return;
    await Promise.all([node.close(), app.close()]);
    process.exit(0);
  });
  const places: Places = {
    node: Number(node.address.split(':')[1]),
    rest: (app.app.server.address() as AddressInfo).port,
    nodeToken,
    apiKey: app.token,
    links,
  };
  process.send?.(places);
}

if (process.argv[1] === import.meta.filename) await serve();
