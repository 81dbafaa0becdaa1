/** A file that native code reads in place: processes that map it share it (Linux, mmap(2)). */
import { closeSync, fstatSync, openSync } from 'node:fs';
import koffi from 'koffi';

/** The values are those of Linux. */
const PROT_READ = 1;
const MAP_PRIVATE = 2;
const MADV_DONTNEED = 4;
const FAILED = 2n ** 64n - 1n;

interface MappedFile {
  readonly address: unknown;
  readonly bytes: Uint8Array;
  /** The bytes that were read leave the process's memory, and come back where they are read again. */
  letGo(): void;
}

/** Maps a file until the process ends. Whoever shortens the file later ends the process. */
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
