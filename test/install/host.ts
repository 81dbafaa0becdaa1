/** A machine with a real systemd: a container of systemd-nspawn over this one's files, which it leaves as they are. */
import { type ChildProcess, execFile, execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { ROOT } from '../running-service.ts';
import { findProgram, spawnBound } from '../support/foreign-program.ts';

const BOOT_MS_MAX = 60_000;
const POLL_MS = 200;
const OUTPUT_BYTES_MAX = 64 * 1024 * 1024;
/** The root user's of a shell; nothing of the caller's environment comes in. */
const ENV = ['PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin', 'HOME=/root'];

export interface Ran {
  readonly code: number;
  /** Both outputs, in their order. */
  readonly said: string;
}

/** False: a host can be booted here. Otherwise it says loudly what is not tested. */
export function skipWithoutNspawn(): string | false {
  const missing =
    process.getuid?.() !== 0 ? 'only root can boot a container' : missingProgram('systemd-nspawn');
  if (missing === false) return false;
  const line = '*'.repeat(90);
  console.error(`${line}\nNOT TESTED: the installation under systemd: ${missing}\n${line}`);
  return missing;
}

function missingProgram(name: string): string | false {
  return findProgram(name) === undefined ? `without ${name} (Debian: systemd-container)` : false;
}

export class Host implements AsyncDisposable {
  readonly #folder: string;
  readonly #container: ChildProcess;
  #init = 0;

  private constructor(folder: string, container: ChildProcess) {
    this.#folder = folder;
    this.#container = container;
  }

  /** Boots one with loopback alone, and this checkout, read-only, in `checkout`. */
  static async boot(checkout: string): Promise<Host> {
    const folder = mkdtempSync(path.join(tmpdir(), 'matting-host-'));
    const mount = (...args: readonly string[]) => execFileSync('mount', args);
    // A layer cannot lie on an overlay, as the root of many containers is.
    mount('-t', 'tmpfs', 'tmpfs', folder);
    const [root, upper, work] = ['root', 'upper', 'work'].map(name => path.join(folder, name));
    for (const each of [root, upper, work]) mkdirSync(each!);
    mount('-t', 'overlay', 'overlay', '-o', `lowerdir=/,upperdir=${upper},workdir=${work}`, root!);
    writeFileSync(path.join(root!, 'etc/machine-id'), '');
    mkdirSync(path.join(root!, checkout), { recursive: true });
    const container = spawnBound(findProgram('systemd-nspawn') ?? '', [
      ...['--quiet', '--register=no', '--keep-unit', '--private-network', '--link-journal=no'],
      ...[`--directory=${root}`, `--machine=matting-${process.pid}`, '--console=pipe'],
      ...[`--bind-ro=${ROOT}:${checkout}`, '--boot', 'systemd.unit=basic.target'],
    ]);
    container.stderr?.resume();
    const host = new Host(folder, container);
    try {
      await host.#untilBooted();
    } catch (error) {
      await host[Symbol.asyncDispose]();
      throw error;
    }
    return host;
  }

  /** Runs lines as root's shell does, to their end; it throws nothing at a code of theirs. */
  async run(lines: string, directory = '/'): Promise<Ran> {
    const inside = ['--target', String(this.#init), '--all', 'env', '-i', ...ENV];
    const script = `exec 2>&1; cd ${directory} && { ${lines}\n}`;
    const options = { maxBuffer: OUTPUT_BYTES_MAX, encoding: 'utf8' as const };
    return await new Promise(resolve => {
      execFile('nsenter', [...inside, 'sh', '-c', script], options, (error, said) => {
        resolve({ code: error === null ? 0 : Number(error.code), said });
      });
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#container.exitCode === null && this.#container.signalCode === null) {
      const gone = once(this.#container, 'exit');
      this.#container.ref();
      // The first process ends all others with it, and nspawn then leaves nothing behind.
      if (this.#init === 0) this.#container.kill('SIGKILL');
      else process.kill(this.#init, 'SIGKILL');
      await gone;
    }
    execFileSync('umount', ['--recursive', this.#folder]);
    rmSync(this.#folder, { recursive: true });
  }

  async #untilBooted(): Promise<void> {
    const deadlineMs = performance.now() + BOOT_MS_MAX;
    for (let said = ''; ; await delay(POLL_MS)) {
      this.#init = childOf(this.#container.pid ?? 0);
      if (this.#init !== 0) ({ said } = await this.run('systemctl is-active basic.target'));
      if (said.trim() === 'active') return;
      if (performance.now() > deadlineMs) throw new Error(`systemd has not booted: ${said}`);
    }
  }
}

/** The container's first process; 0: not yet. */
function childOf(pid: number): number {
  return Number(readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').split(' ')[0] ?? 0);
}
