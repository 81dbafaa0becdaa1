/** A file that native code reads in place. Processes that map it share its memory (mmap(2)). */
import { closeSync, fstatSync, openSync } from 'node:fs';
import koffi from 'koffi';

const PROT_READ = 1;
const MAP_PRIVATE = 2;
const MADV_DONTNEED = 4;
const FAILED = 2n ** 64n - 1n;

interface MappedFile {
  readonly address: unknown;
  readonly bytes: Uint8Array;
  /** Drops the pages from the process's memory. Reading restores them. */
  letGo(): void;
}

/** Maps a file until the process ends. Reading a file that was shortened ends the process. */
export function mapFile(path: string): MappedFile {
  const libc = koffi.load(null);
  const mmap = libc.func('void *mmap(void *, size_t, int, int, int, int64)');
  const madvise = libc.func('int madvise(void *, size_t, int)');
  using closed = new DisposableStack();
  const fd = closed.adopt(openSync(path, 'r'), closeSync);
  const { size } = fstatSync(fd);
  const address: unknown = mmap(null, size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (koffi.address(address) === FAILED) throw new Error(`${path} cannot be mapped`);
  return {
    address,
    bytes: new Uint8Array(koffi.view(address, size)),
    letGo: () => madvise(address, size, MADV_DONTNEED),
  };
}
