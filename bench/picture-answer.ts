/**
 * What the picture as the answer saves: a synchronous submission and the download of its link,
 * against one request with `Accept: image/png`, in turns in one run, on a connection that is kept:
 * near by, and over a wire of 25 ms each way. The node is a stub that takes no time, so that what
 * is left is the way to the picture.
 */
import { randomBytes, randomUUID } from 'node:crypto';
import { Agent, type IncomingMessage, request } from 'node:http';
import { pngHeader } from '../control-plane/core/test/support/test-app.ts';
import { Replicas } from '../control-plane/test/programs.ts';
import { at } from '../test/support/at.ts';
import { LongWire } from './long-wire.ts';
import { writeResults } from './results.ts';
import { median } from './service.ts';

const DELAY_MS = 25;
/** About the cut-out of a photo of 2 megapixels as WebP. */
const PICTURE_BYTES = 500_000;
const ROUNDS = 60;

interface Answer {
  readonly headers: IncomingMessage['headers'];
  readonly body: Buffer;
}

const replicas = await Replicas.open('sqlite', { replicas: 1 });
const { token } = await replicas.createCaller(1_000_000);

/** @param payload undefined: a download */
async function ask(
  agent: Agent,
  port: number,
  path: string,
  payload?: string,
  accept = '*/*',
): Promise<Answer> {
  const submission = { authorization: `Bearer ${token}`, 'idempotency-key': randomUUID() };
  const headers = {
    accept,
    ...(payload === undefined ? {} : { ...submission, 'content-type': 'application/json' }),
  };
  const method = payload === undefined ? 'GET' : 'POST';
  const answer = await new Promise<IncomingMessage>((resolve, reject) => {
    const sent = request({ agent, port, path, method, headers, host: '127.0.0.1' }, resolve);
    sent.once('error', reject).end(payload);
  });
  const body = Buffer.concat(await answer.toArray());
  if (answer.statusCode !== 200) throw new Error(`${answer.statusCode}: ${body}`);
  return { headers: answer.headers, body };
}

function payload(): string {
  const image = Buffer.concat([pngHeader(2000, 1000), randomBytes(PICTURE_BYTES)]);
  return JSON.stringify({ image_base64: image.toString('base64') });
}

async function byLink(agent: Agent, port: number): Promise<number> {
  const body = payload();
  const startedMs = performance.now();
  const { result } = JSON.parse((await ask(agent, port, '/v1/matting', body)).body.toString());
  const file = await ask(agent, port, new URL(result.url).pathname);
  requireWhole(file.body);
  return performance.now() - startedMs;
}

async function asAnswer(agent: Agent, port: number): Promise<number> {
  const body = payload();
  const startedMs = performance.now();
  const file = await ask(agent, port, '/v1/matting', body, 'image/png');
  requireWhole(file.body);
  return performance.now() - startedMs;
}

function requireWhole(file: Buffer): void {
  if (file.length < PICTURE_BYTES) throw new Error(`${file.length} bytes of the picture`);
}

async function measure(port: number): Promise<Record<string, number>> {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  const linkMs: number[] = [];
  const answerMs: number[] = [];
  for (let round = -5; round < ROUNDS; round += 1) {
    // The one that comes first of a round changes.
    const turns = [
      async () => linkMs.push(await byLink(agent, port)),
      async () => answerMs.push(await asAnswer(agent, port)),
    ];
    for (const turn of round % 2 === 0 ? turns : turns.reverse()) await turn();
    // The first rounds warm up.
    if (round < 0) for (const values of [linkMs, answerMs]) values.length = 0;
  }
  agent.destroy();
  return {
    byLinkMs: median(linkMs),
    asAnswerMs: median(answerMs),
    // Of each round on its own: other work on the machine disturbs both of its turns.
    savedMs: median(linkMs.map((ms, round) => ms - at(answerMs, round))),
    // What it disturbed least.
    byLinkLeastMs: Math.min(...linkMs),
    asAnswerLeastMs: Math.min(...answerMs),
  };
}

function named(where: string, figures: Record<string, number>): Record<string, number> {
  return Object.fromEntries(Object.entries(figures).map(([name, ms]) => [`${where} ${name}`, ms]));
}

const results: Record<string, unknown> = { pictureBytes: PICTURE_BYTES, delayEachWayMs: DELAY_MS };
try {
  await replicas.addNode();
  const near = Number(new URL(replicas.url(0, '/')).port);
  const far = await LongWire.open(near, DELAY_MS);
  Object.assign(results, named('near', await measure(near)), named('far', await measure(far.port)));
  far.close();
  writeResults('picture-answer', results);
} finally {
  await replicas.close();
}
