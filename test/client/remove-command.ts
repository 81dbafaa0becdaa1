/** `matting remove`, as a program and in this process, with a real service and a scripted node. */

import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import type { SerialFn } from 'ava';
import sinon from 'sinon';
import type { JournalLine } from '../../client/src/command/journal.ts';
import { main } from '../../client/src/command/main.ts';
import type { Caller } from '../../control-plane/core/test/support/replicas.ts';
import { pngHeader } from '../../control-plane/core/test/support/test-app.ts';
import type { ScriptedNode } from '../../control-plane/nodes/test/scripted-node.ts';
import { Replicas } from '../../control-plane/test/programs.ts';
import { findFreePorts } from '../../program/ports/free-ports.ts';
import { SelectableKind, type SelectableModel } from '../../proto/gen/matting/v1/matte_service.ts';
import { ROOT } from '../running-service.ts';
import { STARTED_ENV } from '../support/started-env.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

export interface RunEnd {
  readonly code: number | null;
  readonly stdout: Buffer;
  readonly stderr: string;
}

export interface Run {
  readonly child: ChildProcess;
  readonly ended: Promise<RunEnd>;
  stderr(): string;
}

const PROGRAM = path.join(ROOT, 'bin/matting.ts');

const OWN_PLAN: SelectableModel = {
  name: 'standard',
  kind: SelectableKind.SELECTABLE_KIND_PLAN,
  default: true,
  sha256: '5a',
  memoryBytes: 0,
  goodFor: 'products, people',
  weights: undefined,
  trainingData: undefined,
  runs: [],
};

export class RemoveCommand {
  replicas!: Replicas;
  node!: ScriptedNode;
  url!: string;
  /** 1000 credits, new for each test. */
  caller!: Caller;
  folder!: string;

  async open(): Promise<void> {
    const [port] = await findFreePorts(1);
    this.url = `http://127.0.0.1:${port}`;
    const env = {
      MATTING_PORT: String(port),
      MATTING_BASE_URL: this.url,
      MATTING_ALLOW_PRIVATE_ADDRESSES: 'true',
    };
    this.replicas = await Replicas.open('sqlite', { replicas: 1, env });
    const info = { selectable: [OWN_PLAN] };
    this.node = await this.replicas.addNode({ imagesMax: 16, info });
  }

  async renew(folders: string): Promise<void> {
    this.node.script = exchange => exchange.cutOut();
    this.caller = await this.replicas.createCaller(1000);
    this.folder = mkdtempSync(path.join(folders, 'test-'));
  }

  readonly start = (args: readonly string[]): Run => {
    return this.#spawn(process.execPath, [PROGRAM, 'remove', ...args]);
  };

  /** @param args with wildcards, as a shell takes them */
  readonly startByShell = (args: string): Run => {
    return this.#spawn('sh', ['-c', `exec "${process.execPath}" "${PROGRAM}" remove ${args}`]);
  };

  #spawn(program: string, args: readonly string[]): Run {
    const child = spawn(program, args, {
      cwd: this.folder,
      env: { ...STARTED_ENV, MATTING_API_KEY: this.caller.token },
      stdio: ['pipe', 'pipe', 'pipe'],
    });
    const stdout: Buffer[] = [];
    let stderr = '';
    child.stdout.on('data', (piece: Buffer) => stdout.push(piece));
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      stderr += text;
    });
    const ended = new Promise<number | null>(resolve => child.once('close', resolve)).then(
      code => ({
        code,
        stdout: Buffer.concat(stdout),
        stderr,
      }),
    );
    return { child, ended, stderr: () => stderr };
  }

  readonly run = async (args: readonly string[], apiKey = this.caller.token): Promise<RunEnd> => {
    const before = process.cwd();
    process.chdir(this.folder);
    process.env.MATTING_API_KEY = apiKey;
    const out = sinon.stub(process.stdout, 'write').returns(true);
    const err = sinon.stub(process.stderr, 'write').returns(true);
    let code: number;
    try {
      code = await main(['--url', this.url, ...args]);
    } finally {
      out.restore();
      err.restore();
      process.chdir(before);
      delete process.env.MATTING_API_KEY;
    }
    const said = (calls: typeof out) => calls.args.map(([text]) => String(text)).join('');
    return { code, stdout: Buffer.from(said(out)), stderr: said(err) };
  };

  readonly write = (name: string, content: Buffer | string): void => {
    mkdirSync(path.dirname(path.join(this.folder, name)), { recursive: true });
    writeFileSync(path.join(this.folder, name), content);
  };

  readonly read = (name: string): Buffer => readFileSync(path.join(this.folder, name));

  readonly filesBelow = (name: string): string[] => {
    const top = path.join(this.folder, name);
    return readdirSync(top, { recursive: true, withFileTypes: true })
      .filter(entry => entry.isFile())
      .map(entry => path.relative(top, path.join(entry.parentPath, entry.name)))
      .sort();
  };

  readonly journal = (name = 'out'): JournalLine[] => {
    const text = this.read(`${name}/results.jsonl`).toString();
    assert.ok(text === '' || text.endsWith('\n'), 'whole lines');
    return text
      .split('\n')
      .slice(0, -1)
      .map(line => JSON.parse(line));
  };

  readonly charged = async (): Promise<number> => {
    const credits = await this.replicas.stores.ledger.credits(this.caller.accountId);
    return credits?.charged ?? 0;
  };
}

export async function useRemoveCommand(
  test: Pick<SerialFn, 'before' | 'beforeEach' | 'after'>,
): Promise<RemoveCommand> {
  const folders = await temporaryFolder({ teardown: test.after.always });
  const command = new RemoveCommand();
  test.before(() => command.open());
  test.beforeEach(() => command.renew(folders));
  test.after.always(() => command.replicas.close());
  return command;
}

export function picture(number: number): Buffer {
  return Buffer.concat([pngHeader(4, 3), Buffer.from(`picture ${number}`)]);
}
