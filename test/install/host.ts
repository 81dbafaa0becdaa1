/** A machine with systemd: systemd-nspawn over this machine's files, unchanged. */
import assert from 'node:assert/strict';
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
/** root's; nothing of the caller's environment comes in. */
const ENV = ['PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin', 'HOME=/root'];

export interface Ran {
  readonly code: number;
  readonly said: string;
}

export function skipWithoutNspawn(): string | false {
  if (process.getuid?.() !== 0) return 'systemd: only root can boot a container';
  const isHere = findProgram('systemd-nspawn') !== undefined;
  return isHere ? false : 'systemd: without systemd-nspawn (Debian: systemd-container)';
}

/** For hosts without a network; goes into the checkout's `model-cache`. */
export function fetchSmallestModel(): void {
  const settings = { MATTING_MODEL_DIR: `${ROOT}/model-cache`, MATTING_CPU_RUNTIME: 'onnxruntime' };
  const args = ['bin/matting.ts', 'models', 'fetch', 'u2netp'];
  execFileSync(process.execPath, args, { cwd: ROOT, env: { ...process.env, ...settings } });
}

export class Host implements AsyncDisposable {
  readonly #folder: string;
  readonly #container: ChildProcess;
  #init = 0;

  private constructor(folder: string, container: ChildProcess) {
    this.#folder = folder;
    this.#container = container;
  }

  /** Loopback only; `folders` by their paths there, read-only. */
  static async boot(folders: Readonly<Record<string, string>>): Promise<Host> {
    const folder = mkdtempSync(path.join(tmpdir(), 'matting-host-'));
    const mount = (...args: readonly string[]) => execFileSync('mount', args);
    // overlayfs cannot be its own upper layer, and many containers' root is one.
    mount('-t', 'tmpfs', 'tmpfs', folder);
    const [root, upper, work] = ['root', 'upper', 'work'].map(name => path.join(folder, name));
    for (const each of [root, upper, work]) mkdirSync(each!);
    mount('-t', 'overlay', 'overlay', '-o', `lowerdir=/,upperdir=${upper},workdir=${work}`, root!);
    writeFileSync(path.join(root!, 'etc/machine-id'), '');
    const binds = Object.entries(folders).map(([place, from]) => `--bind-ro=${from}:${place}`);
    for (const place of Object.keys(folders))
      mkdirSync(path.join(root!, place), { recursive: true });
    const container = spawnBound(findProgram('systemd-nspawn') ?? '', [
      ...['--quiet', '--register=no', '--keep-unit', '--private-network', '--link-journal=no'],
      ...[`--directory=${root}`, `--machine=matting-${process.pid}`, '--console=pipe'],
      ...[...binds, '--boot', 'systemd.unit=basic.target'],
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

  /** As root's shell; no exit code makes it throw. */
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

  async done(lines: string, directory = '/'): Promise<string> {
    const { code, said } = await this.run(lines, directory);
    assert.equal(code, 0, `${lines}: ${said}`);
    return said;
  }

  async until(what: string, lines: string): Promise<void> {
    const wait = `for i in $(seq 120); do { ${lines}; } >/dev/null 2>&1 && exit; sleep 1; done; exit 1`;
    const { code } = await this.run(wait);
    const log = 'journalctl --no-pager -n 40 -o cat';
    assert.equal(code, 0, `${what}: ${code === 0 ? '' : (await this.run(log)).said}`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#container.exitCode === null && this.#container.signalCode === null) {
      const gone = once(this.#container, 'exit');
      this.#container.ref();
      // Ends all processes; nspawn then leaves nothing.
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

/** Of the container; 0: not yet. */
function childOf(pid: number): number {
  return Number(readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').split(' ')[0] ?? 0);
}
