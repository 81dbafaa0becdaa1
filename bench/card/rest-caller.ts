/** One image over REST as a caller that cares for its processor sends it: bytes out, bytes in. */
import { randomUUID } from 'node:crypto';
import { Agent, type IncomingMessage, request } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import type { OutputFormat } from '#contract/formats.ts';
import type { BenchPhoto } from '../photos.ts';

export interface RestAnswer {
  readonly file: Buffer;
  /** The call ended before the picture was made: the job was read until it was. */
  readonly later: boolean;
}

export interface RestCaller {
  /** Rejects where the image is refused or fails. */
  cutOut(photo: BenchPhoto, format: OutputFormat): Promise<RestAnswer>;
  close(): void;
}

interface Answer {
  readonly status: number;
  readonly headers: IncomingMessage['headers'];
  readonly body: Buffer;
}

const READ_PAUSE_MS = 500;
const WORDS_MAX = 300;
/** A node may have to start anew first. */
const JOB_MAX_MS = 600_000;

export function openRestCaller(origin: string, apiKey: string): RestCaller {
  const { hostname, port } = new URL(origin);
  const agent = new Agent({ keepAlive: true });
  const authorization = `Bearer ${apiKey}`;
  const ask = async (path: string, headers: Record<string, string | number>, body?: Buffer) => {
    const method = body === undefined ? 'GET' : 'POST';
    const answer = await new Promise<IncomingMessage>((resolve, reject) => {
      const options = { agent, hostname, port, path, method, headers };
      request(options, resolve).on('error', reject).end(body);
    });
    const whole = Buffer.concat(await answer.toArray());
    return { status: answer.statusCode ?? 0, headers: answer.headers, body: whole };
  };
  const read = async (job: string): Promise<Buffer> => {
    const giveUpMs = performance.now() + JOB_MAX_MS;
    while (performance.now() < giveUpMs) {
      const answer = await ask(job, { authorization });
      const { status, result } = JSON.parse(answer.body.toString()) as JobWords;
      if (result !== undefined) {
        const { pathname, search } = new URL(result.url);
        return (await ask(`${pathname}${search}`, {})).body;
      }
      if (status !== 'queued' && status !== 'processing') throw refusal(answer);
      await delay(READ_PAUSE_MS);
    }
    throw new Error(`${job} is not done after ${JOB_MAX_MS / 1000} s`);
  };
  return {
    cutOut: async ({ file, name }, format) => {
      const headers = {
        authorization,
        accept: `image/${format}`,
        'idempotency-key': randomUUID(),
        'content-type': `image/${name.split(' ').at(-1)}`,
        'content-length': file.length,
      };
      const answer = await ask(`/v1/matting?output_format=${format}`, headers, file);
      if (answer.status === 200) return { file: answer.body, later: false };
      const { location } = answer.headers;
      if (answer.status !== 202 || location === undefined) throw refusal(answer);
      return { file: await read(new URL(location, origin).pathname), later: true };
    },
    close: () => agent.destroy(),
  };
}

interface JobWords {
  readonly status: string;
  readonly result?: { readonly url: string };
}

/** Without what differs from one refusal to the next, so that they can be counted. */
function refusal({ status, body }: Answer): Error {
  const text = body.toString().slice(0, WORDS_MAX);
  const words = /"code":\s*"(\w+)"/.exec(text)?.[1] ?? text;
  return new Error(`${status} ${words}`);
}
