/**
 * Compares a hostile body's cost to the control plane with an honest form's of that size: processor
 * time of its process, in turns within one run, and the longest that one piece of 64 KiB holds a
 * reader. Exits with 1 where a body costs more than RATIO_MAX, or a piece holds the loop for
 * HOLD_MS_MAX.
 *
 *     sh bin/node24 bench/parse-cost.ts [part of a name]
 * Needs: removebg, portal.
 */
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { Readable } from 'node:stream';
import { Client } from 'undici';
import { mattingBodyReaderOf } from '../control-plane/core/http/read-matting-body.ts';
import { RawBytes } from '../control-plane/core/submission/image-upload.ts';
import type { RequestUploads } from '../control-plane/core/submission/image-uploads.ts';
import { pngHeader } from '../control-plane/core/test/support/test-app.ts';
import { Base64Decoder } from '../control-plane/http/base64.ts';
import { readRemovebgBody } from '../control-plane/removebg/removebg-body.ts';
import { UNCOUNTED } from '../program/held-bytes.ts';
import { boundChunks, GatheringMessage } from '../program/ports/chunked-bodies.ts';
import { startControlPlane } from './control-plane-process.ts';
import {
  BODY_BYTES,
  HOSTILE_BODIES,
  HOSTILE_REQUESTS,
  type HostileBody,
  type HostileRequest,
  honestForm,
  piecesOf,
  wireOf,
} from './hostile-bodies.ts';
import { sendRaw } from './raw-request.ts';
import { writeResults } from './results.ts';
import { median } from './service.ts';

const ROUNDS = 3;
const RATIO_MAX = 3;
const HOLD_MS_MAX = 20;
/** The same body again: the least time of a piece is its own, the rest is what else ran. */
const HOLD_RUNS = 4;
const HOLD_BYTES = 8 * 2 ** 20;
/** The largest image that is taken. */
const IMAGE_BYTES = 50 * 2 ** 20;
const MIB = 2 ** 20;
/** Node reads so many from a socket at once. */
const READ_BYTES = 64 * 1024;
/** Each kind of small ones has so many: the system counts processor time in ticks of 10 ms. */
const REQUESTS = 100;
const SMALL_BYTES = 16_000;

const header = pngHeader(4000, 3000);
const honest = honestForm(Buffer.concat([header, randomBytes(IMAGE_BYTES - header.length)]));
const wanted = process.argv[2] ?? '';
const bodies = HOSTILE_BODIES.filter(({ name }) => name.includes(wanted));
const requests = HOSTILE_REQUESTS.filter(({ name }) => name.includes(wanted));
const plane = await startControlPlane();

/** Milliseconds of processor time, and what the request was answered with. */
async function cpuMsOf(body: HostileBody): Promise<{ ms: number; status: number; mib: number }> {
  const framing =
    body.chunkBytes === undefined
      ? { 'content-length': String(BODY_BYTES) }
      : { 'transfer-encoding': 'chunked' };
  const headers = { ...plane.headers(), 'content-type': body.type, ...framing };
  const before = plane.cpuMs();
  const request = { origin: plane.origin, path: body.path, headers, body: wireOf(body) };
  const { status, bytesSent } = await sendRaw(request);
  return { ms: plane.cpuMs() - before, status, mib: bytesSent / MIB };
}

/** Measures an honest body of as many bytes as a hostile one has. */
async function honestMs(): Promise<number> {
  const { type, body } = honest;
  const length = { 'content-length': String(body.length) };
  const headers = { ...plane.headers(), 'content-type': type, ...length };
  const before = plane.cpuMs();
  const request = { origin: plane.origin, path: '/v1/matting/jobs', headers, body: [body] };
  const { status } = await sendRaw(request);
  if (status !== 202) throw new Error(`an honest form was answered with ${status}`);
  return ((plane.cpuMs() - before) * BODY_BYTES) / body.length;
}

/** Decodes and hashes as an upload does; nothing waits, so that each piece is one turn. */
function uploadsInMemory(): RequestUploads {
  const upload = () => {
    const hash = createHash('sha256');
    let reader: Pick<Base64Decoder, 'push'> = new Base64Decoder();
    return {
      takeBytes: () => {
        reader = new RawBytes();
      },
      write: async (piece: Uint8Array) => {
        hash.update(reader.push(piece));
      },
    };
  };
  return { image: upload(), background: upload(), texts: UNCOUNTED } as unknown as RequestUploads;
}

/** Milliseconds from each piece to the next that the reader asks for. */
async function holdsOf(body: HostileBody): Promise<number[]> {
  const pieces = piecesOf(body, HOLD_BYTES);
  const holds: number[] = [];
  const stream = new Readable({
    highWaterMark: 1,
    read() {
      const { value } = pieces.next();
      // A piece comes in an iteration of its own; its work is done before the next one.
      setImmediate(() => {
        const givenMs = performance.now();
        setImmediate(() => holds.push(performance.now() - givenMs));
        this.push(value ?? null);
      });
    },
  });
  const headers = { 'transfer-encoding': 'chunked' };
  const rawHeaders = ['Content-Type', body.type];
  const request = Object.assign(stream, { rawHeaders, headers, url: '/' });
  const message = request as unknown as IncomingMessage;
  const uploads = uploadsInMemory();
  const read =
    body.path === '/v1.0/removebg'
      ? readRemovebgBody(message, uploads)
      : mattingBodyReaderOf(message)(uploads);
  await read.catch(() => undefined);
  await new Promise(resolve => setImmediate(resolve));
  return holds;
}

/** Measures one read from the socket that is full of chunks of the transfer coding. */
async function chunksHoldMs(body: HostileBody): Promise<number> {
  const holds: number[] = [];
  const server = createServer({ IncomingMessage: GatheringMessage });
  boundChunks(server);
  server.prependListener('request', request => {
    const beganMs = performance.now();
    setImmediate(() => holds.push(performance.now() - beganMs));
    request.on('error', () => undefined).resume();
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const [coded = Buffer.alloc(0)] = [...wireOf(body, READ_BYTES)].slice(1);
  const head = 'POST / HTTP/1.1\r\nHost: bench\r\nTransfer-Encoding: chunked\r\n\r\n';
  for (let run = 0; run < 2 * HOLD_RUNS; run += 1) {
    const socket = connect((server.address() as AddressInfo).port, '127.0.0.1');
    socket.on('error', () => undefined);
    // One write, so that it is read in one piece.
    socket.write(Buffer.concat([Buffer.from(head), coded]).subarray(0, READ_BYTES));
    while (holds.length <= run) await new Promise(resolve => setImmediate(resolve));
    socket.destroy();
  }
  server.closeAllConnections();
  server.close();
  return Math.min(...holds);
}

/** Milliseconds of processor time for one such request. */
async function requestMs(client: Client, sent: () => HostileRequest): Promise<number> {
  const before = plane.cpuMs();
  for (let count = 0; count < REQUESTS; count += 1) {
    const { path, headers, body } = sent();
    const all = { ...plane.headers(), ...headers };
    const answer = await client.request({ method: 'POST', path, headers: all, body });
    await answer.body.dump();
    if (answer.statusCode >= 500) throw new Error(`${path.slice(0, 60)}: ${answer.statusCode}`);
  }
  return (plane.cpuMs() - before) / REQUESTS;
}

async function longestHoldMs(body: HostileBody): Promise<number> {
  const runs: number[][] = [];
  for (let run = 0; run < HOLD_RUNS; run += 1) runs.push(await holdsOf(body));
  const least = runs[0]!.map((_, piece) => Math.min(...runs.flatMap(run => run[piece] ?? [])));
  return Math.max(...least);
}

interface Measured {
  readonly ratios: number[];
  readonly holdMs: number;
  status: number;
  mib: number;
}

/** A form of as many bytes as the largest of the small requests. */
function smallForm(): HostileRequest {
  const image = Buffer.concat([header, Buffer.alloc(SMALL_BYTES)]).toString('latin1');
  const { type, body } = honestForm(Buffer.from(image, 'latin1'));
  const headers = { 'content-type': type };
  return { name: 'honest', path: '/v1/matting/jobs', headers, body: body.toString('latin1') };
}

const requestRatios = new Map<HostileRequest, number[]>();
const measured = new Map<HostileBody, Measured>();
const honestRounds: number[] = [];
try {
  await honestMs();
  for (const body of bodies) {
    const hold = body.chunkBytes === undefined ? longestHoldMs : chunksHoldMs;
    const holdMs = await hold(body);
    measured.set(body, { ratios: [], holdMs, status: 0, mib: 0 });
  }
  for (let round = 0; round < ROUNDS; round += 1) {
    const base = ((await honestMs()) + (await honestMs())) / 2;
    honestRounds.push(base);
    for (const [body, figures] of measured) {
      const { ms, status, mib } = await cpuMsOf(body);
      figures.ratios.push(ms / base);
      Object.assign(figures, { status, mib });
    }
  }
  const client = new Client(plane.origin);
  const small = smallForm();
  await requestMs(client, () => small);
  for (let round = 0; round < ROUNDS; round += 1) {
    const base = await requestMs(client, () => small);
    for (const request of requests) {
      const ratios = requestRatios.get(request) ?? [];
      ratios.push((await requestMs(client, () => request)) / base);
      requestRatios.set(request, ratios);
    }
  }
  await client.destroy();
} finally {
  await plane.close();
}

const rows = [...measured].map(([{ path, name }, { ratios, holdMs, status, mib }]) => {
  const ratio = median(ratios);
  if (ratio > RATIO_MAX || holdMs > HOLD_MS_MAX) process.exitCode = 1;
  const told = `${path} ${name}`.padEnd(50);
  return `${told} ${ratio.toFixed(2)}  ${holdMs.toFixed(1)} ms  ${status}  ${mib.toFixed(1)} MiB sent`;
});
for (const [{ name }, ratios] of requestRatios) {
  const ratio = median(ratios);
  if (ratio > RATIO_MAX) process.exitCode = 1;
  rows.push(`${name.padEnd(50)} ${ratio.toFixed(2)}`);
}
console.log(`\nratio to an honest form, longest hold, answer\n${rows.join('\n')}`);
writeResults('parse-cost', {
  bodyMiB: BODY_BYTES / MIB,
  honestMs: median(honestRounds),
  worstRatio: Math.max(0, ...[...measured.values()].map(({ ratios }) => median(ratios))),
  worstRequestRatio: Math.max(0, ...[...requestRatios.values()].map(median)),
  longestHoldMs: Math.max(0, ...[...measured.values()].map(({ holdMs }) => holdMs)),
  ratioWanted: RATIO_MAX,
  holdWantedMs: HOLD_MS_MAX,
});
