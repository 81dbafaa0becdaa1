/**
 * Another background remover on the same weights, @imgly/background-removal-node, as a program to
 * measure beside the service (beside-peer.ts). It is installed into a folder of its own outside the
 * project (its licence is AGPL-3.0: it is run here as a program beside ours, and nothing of it is
 * part of the product), with the sharp and the ONNX Runtime that the service has, so that the
 * difference is not theirs.
 */
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { copyFileSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { createInterface } from 'node:readline';
import type { OutputFormat } from '../proto/contract/formats.ts';
import type { BenchPhoto } from './photos.ts';
import { cpuMsOf } from './processes.ts';
// The process that it starts needs this.
import '../inference-node/serving/engine/child/telemetry-off.ts';

const PACKAGE = '@imgly/background-removal-node';
const PACKAGE_JSON = {
  name: 'matting-bench-peer',
  private: true,
  type: 'module',
  dependencies: { [PACKAGE]: '1.4.5' },
  overrides: { sharp: '0.35.5', 'onnxruntime-node': '1.30.0' },
};

/** Reads a line of JSON {file, type, format}, answers with the milliseconds it took. */
const PEER_PROGRAM = `import { removeBackground } from '${PACKAGE}';
import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
for await (const line of createInterface({ input: process.stdin })) {
  const { file, type, format } = JSON.parse(line);
  const startedMs = performance.now();
  const blob = new Blob([readFileSync(file)], { type });
  const output = { format, quality: 0.9 };
  const result = await removeBackground(blob, { model: 'medium', output });
  const bytes = (await result.arrayBuffer()).byteLength;
  console.log(JSON.stringify({ ms: performance.now() - startedMs, bytes }));
}
`;

export interface Peer {
  readonly name: string;
  /** Milliseconds. */
  run(photo: BenchPhoto, format: OutputFormat): Promise<number>;
  /** Processor time so far. */
  cpuMs(): number;
  close(): Promise<void>;
}

export function openPeer(): Peer {
  return startPeer(installPeer());
}

/** A second run finds it there. */
function installPeer(): string {
  const folder = path.join(import.meta.dirname, '../node_modules/.cache/bench-peer');
  const text = `${JSON.stringify(PACKAGE_JSON, null, 2)}\n`;
  const manifest = path.join(folder, 'package.json');
  const done = path.join(folder, '.installed');
  mkdirSync(folder, { recursive: true });
  writeFileSync(path.join(folder, 'peer.mjs'), PEER_PROGRAM);
  if (existsSync(done) && readFileSync(done, 'utf8') === text) return folder;
  writeFileSync(manifest, text);
  copyFileSync(path.join(import.meta.dirname, '../.npmrc'), path.join(folder, '.npmrc'));
  // npm on this very Node: an older one leaves out native packages that do not name it.
  const env = {
    ...process.env,
    PATH: `${path.dirname(process.execPath)}${path.delimiter}${process.env.PATH}`,
  };
  const { status } = spawnSync('npm', ['install', '--loglevel=error'], {
    cwd: folder,
    env,
    stdio: ['ignore', 'inherit', 'inherit'],
  });
  if (status !== 0) throw new Error(`${PACKAGE} could not be installed into ${folder}`);
  writeFileSync(done, text);
  return folder;
}

function startPeer(folder: string): Peer {
  const child = spawn(process.execPath, ['peer.mjs'], {
    cwd: folder,
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const lines = createInterface(child.stdout)[Symbol.asyncIterator]();
  return {
    name: PACKAGE,
    cpuMs: () => (child.pid === undefined ? Number.NaN : cpuMsOf(child.pid)),
    run: async (photo, format) => {
      const type = photo.name.endsWith('png') ? 'image/png' : 'image/jpeg';
      const file = path.join(folder, type === 'image/png' ? 'photo.png' : 'photo.jpg');
      writeFileSync(file, photo.file);
      child.stdin.write(`${JSON.stringify({ file, type, format: `image/${format}` })}\n`);
      // Skips output that is not JSON.
      for (;;) {
        const { value, done } = await lines.next();
        if (done) throw new Error(`${PACKAGE} ended before it answered`);
        if (value.startsWith('{')) return (JSON.parse(value) as { ms: number }).ms;
      }
    },
    close: async () => {
      const exited = once(child, 'exit');
      child.kill('SIGKILL');
      await exited;
    },
  };
}
