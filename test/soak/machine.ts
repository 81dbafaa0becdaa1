/**
 * A machine of a service, as far as one machine can play several: a directory of its own with the
 * project in it and an environment file, in which commands of docs/operations.md run as they stand.
 */
import assert from 'node:assert/strict';
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import { ROOT } from '../support/running-service.ts';

const execute = promisify(execFile);
/** As long as a supervisor takes to notice. */
const RESTART_MS = 500;

type Env = Readonly<Record<string, string>>;

/** The indented blocks of a section, in their order, without the indentation. */
export function blocksOf(page: string, heading: string): readonly string[] {
  const text = readFileSync(path.join(ROOT, page), 'utf8');
  const [, section = ''] = text.split(`\n## ${heading}\n`);
  const [own = ''] = section.split('\n## ');
  return [...own.matchAll(/(?:^ {4}.*\n)+/gm)].map(([block]) =>
    block.replace(/^ {4}/gm, '').trim(),
  );
}

/** Names and values of a block that is an environment file. */
export function variablesOf(block: string): Env {
  return Object.fromEntries(
    block.split('\n').map(line => {
      const at = line.indexOf('=');
      return [line.slice(0, at), line.slice(at + 1)];
    }),
  );
}

export class Machine {
  readonly name: string;
  readonly #directory: string;
  readonly #env: Env;
  #child: ChildProcess | undefined;
  #exited: Promise<number | null> = Promise.resolve(null);
  #ending = false;
  /** What it complained of: lines of level 50 and above, and standard error. */
  complaints = '';

  /**
   * @param file the environment file of the documentation, with the values of this place
   * @param ports what several machines share because they are one
   */
  constructor(parent: string, name: string, file: { name: string; values: Env }, ports: Env) {
    this.name = name;
    this.#directory = path.join(parent, name);
    this.#env = { PATH: process.env.PATH ?? '', TMPDIR: parent, ...ports };
    mkdirSync(this.#directory);
    for (const entry of readdirSync(ROOT)) {
      if (entry !== 'data') symlinkSync(path.join(ROOT, entry), path.join(this.#directory, entry));
    }
    const lines = Object.entries(file.values).map(([key, value]) => `${key}=${value}\n`);
    writeFileSync(path.join(this.#directory, file.name), lines.join(''));
  }

  /** To its end; what it printed. */
  async run(command: string): Promise<string> {
    return (await execute('sh', ['-c', command], this.#options())).stdout;
  }

  /** Under a supervisor: started again where it ends with an error. */
  start(command: string): void {
    const child = spawn('sh', ['-c', `exec ${command}`], {
      ...this.#options(),
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    this.#child = child;
    this.#ending = false;
    this.#exited = new Promise(resolve => child.once('close', resolve));
    this.#exited.then(async code => {
      await delay(RESTART_MS);
      // Its store was away when it started, for instance.
      if (!this.#ending && code !== 0) this.start(command);
    });
    child.stderr?.setEncoding('utf8').on('data', text => {
      this.complaints += text;
    });
    createInterface({ input: child.stdout! }).on('line', line => {
      if (JSON.parse(line).level >= 50) this.complaints += `${line}\n`;
    });
  }

  /** As a supervisor ends it. */
  async stop(): Promise<void> {
    this.#ending = true;
    this.#child?.kill('SIGTERM');
    assert.equal(await this.#exited, 0, `${this.name}: ${this.complaints}`);
  }

  async kill(): Promise<void> {
    this.#ending = true;
    this.#child?.kill('SIGKILL');
    await this.#exited;
  }

  #options() {
    return { cwd: this.#directory, env: this.#env, encoding: 'utf8' as const };
  }
}
