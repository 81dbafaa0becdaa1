/** A file system in memory that fills, grows and can become read-only. Needs root. */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { findProgram } from './foreign-program.ts';

export const skipWithoutMounts = (): string | false =>
  process.getuid?.() === 0 && findProgram('mount') !== undefined
    ? false
    : 'only root mounts a small disk';

export class SmallDisk {
  readonly directory: string;

  private constructor(directory: string) {
    this.directory = directory;
  }

  /** @param size as mount takes it: 32m; memory is used only for what is written */
  static mount(size: string): SmallDisk {
    const directory = mkdtempSync(path.join(tmpdir(), 'matting-small-disk-'));
    const disk = new SmallDisk(directory);
    const options = `size=${size},mode=0700`;
    execFileSync('mount', ['-t', 'tmpfs', '-o', options, 'matting-small-disk', directory]);
    process.once('exit', disk.#removeAtExit);
    return disk;
  }

  /** @param options `size=12g`, `ro`, `rw`; ro fails while a file is open for writing */
  remount(options: string): void {
    execFileSync('mount', ['-o', `remount,${options}`, this.directory], { stdio: 'pipe' });
  }

  remove(): void {
    process.removeListener('exit', this.#removeAtExit);
    execFileSync('umount', ['--lazy', this.directory]);
    rmdirSync(this.directory);
  }

  readonly #removeAtExit = () => this.remove();
}
