/**
 * `matting remove` as a process of its own against a real control plane on SQLite with a scripted
 * node, in a folder of the test's own.
 */
import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { findFreePorts } from '../../bin/free-ports.ts';
import type { JournalLine } from '../../bin/remove/journal.ts';
import type { ScriptedNode } from '../../control-plane/test/nodes/scripted-node.ts';
import { type Caller, Replicas } from '../../control-plane/test/support/replicas.ts';
import { pngHeader } from '../../control-plane/test/support/test-app.ts';
import { ROOT } from '../support/running-service.ts';

interface RunEnd {
  readonly code: number | null;
  readonly stdout: Buffer;
  readonly stderr: string;
}

export interface Run {
  readonly child: ChildProcess;
  readonly ended: Promise<RunEnd>;
  stderr(): string;
}

export class RemoveHarness {
  readonly replicas: Replicas;
  readonly node: ScriptedNode;
  readonly url: string;
  /** Of the test: an account of its own with 1000 credits. */
  caller: Caller;
  /** Of the test: where the command runs. */
  folder = '';

  private constructor(replicas: Replicas, node: ScriptedNode, url: string, caller: Caller) {
    this.replicas = replicas;
    this.node = node;
    this.url = url;
    this.caller = caller;
  }

  static async open(): Promise<RemoveHarness> {
    const [port] = await findFreePorts(1);
    const url = `http://127.0.0.1:${port}`;
    const env = { MATTING_PORT: String(port), MATTING_BASE_URL: url };
    const replicas = await Replicas.open('sqlite', { replicas: 1, env });
    const node = await replicas.addNode({ imagesMax: 16 });
    return new RemoveHarness(replicas, node, url, await replicas.createCaller(0));
  }

  async beginTest(): Promise<void> {
    this.node.script = exchange => exchange.cutOut();
    this.caller = await this.replicas.createCaller(1000);
    this.folder = mkdtempSync(path.join(tmpdir(), 'matting-remove-'));
  }

  endTest(): void {
    rmSync(this.folder, { recursive: true, force: true });
  }

  start(args: readonly string[], env: Record<string, string> = {}): Run {
    const program = path.join(ROOT, 'bin/matting.ts');
    const child = spawn(process.execPath, [program, 'remove', ...args], {
      cwd: this.folder,
      env: { PATH: process.env.PATH, MATTING_API_KEY: this.caller.token, ...env },
      stdio: ['pipe', 'pipe', 'pipe'],
    });
    const stdout: Buffer[] = [];
    let stderr = '';
    child.stdout.on('data', (piece: Buffer) => stdout.push(piece));
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      stderr += text;
    });
    const ended = new Promise<number | null>(resolve => child.once('close', resolve)).then(
      code => ({ code, stdout: Buffer.concat(stdout), stderr }),
    );
    return { child, ended, stderr: () => stderr };
  }

  /** To its end, with nothing on its standard input. */
  remove(args: readonly string[], env: Record<string, string> = {}): Promise<RunEnd> {
    const run = this.start([...args, '--url', this.url], env);
    run.child.stdin?.end();
    return run.ended;
  }

  write(name: string, content: Buffer | string): void {
    mkdirSync(path.dirname(path.join(this.folder, name)), { recursive: true });
    writeFileSync(path.join(this.folder, name), content);
  }

  read(name: string): Buffer {
    return readFileSync(path.join(this.folder, name));
  }

  /** Files below, hidden ones too, by name. */
  filesBelow(name: string): string[] {
    const top = path.join(this.folder, name);
    return readdirSync(top, { recursive: true, withFileTypes: true })
      .filter(entry => entry.isFile())
      .map(entry => path.relative(top, path.join(entry.parentPath, entry.name)))
      .sort();
  }

  journal(name = 'out'): JournalLine[] {
    const text = this.read(`${name}/results.jsonl`).toString();
    assert.ok(text === '' || text.endsWith('\n'), 'whole lines');
    return text
      .split('\n')
      .slice(0, -1)
      .map(line => JSON.parse(line));
  }

  async charged(): Promise<number> {
    const credits = await this.replicas.stores.ledger.credits(this.caller.accountId);
    return credits?.sums.charge ?? 0;
  }
}

/** A file that the service takes for a PNG, unlike that of any other number. */
export function picture(number: number): Buffer {
  return Buffer.concat([pngHeader(4, 3), Buffer.from(`picture ${number}`)]);
}
