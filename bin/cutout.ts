/** `matting cutout`: runs a temporary service and sends photos through its REST API. */
import { randomUUID } from 'node:crypto';
import { mkdtemp, open, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import {
  type OutputFormat,
  parseOutputFormat,
  TRANSPARENT_FORMATS,
} from '@matting/proto/contract/formats.ts';
import { describeUnread, readImageHeader } from '@matting/proto/contract/image-header.ts';
import { IMAGE_BYTES_MAX } from '@matting/proto/contract/limits.ts';
import { CommandError } from 'matting-client/src/command/command-error.ts';
import { partialName } from 'matting-client/src/command/partial-files.ts';
import { findCollision, requireWritableName } from 'matting-client/src/command/result-names.ts';
import { warnedOf } from 'matting-client/src/command/warnings.ts';
import type { Bootstrap } from './bootstrap.ts';
import { loadSupervisorConfig, type Ports, ROOT, type SupervisorConfig } from './config.ts';
import { fetchModels } from './fetch-models.ts';
import { type FinishingWishes, type GivenFinishing, readFinishing } from './finishing-options.ts';
import { findStackPorts, type Stack, startStack } from './stack.ts';
import type { Terminal } from './terminal.ts';

const DEMO_IMAGE = path.join(ROOT, 'docs/images/demo.jpg');
const POLL_MS = 500;

/** Settings that the temporary service takes over: how to infer, never where to store. */
const INHERITED_VARIABLES: ReadonlySet<string> = new Set([
  'MATTING_COMMERCIAL_USE',
  'MATTING_ENGINE_THREADS',
  'MATTING_ENGINES',
  'MATTING_EXECUTION_PROVIDER',
  'MATTING_GPU_DEVICES',
  'MATTING_LOG_LEVEL',
  'MATTING_MODEL',
  'MATTING_NODE_MEMORY_PERCENT',
  'MATTING_PICTURE_WORKERS',
  'MATTING_PRECISION',
  'MATTING_PROVIDER_DIR',
  'MATTING_QUALITY',
  'MATTING_WEIGHTS_DIR',
]);

export interface CutoutOptions {
  /** Empty: the demo picture. */
  readonly images: readonly string[];
  /** Its ending chooses the format. Only for a single image. */
  readonly out: string | undefined;
  /** Default: the node's own plan. */
  readonly model?: string | undefined;
  /** Fails if there is no subject, instead of writing an empty result. */
  readonly failWithoutSubject?: boolean | undefined;
  readonly finishing?: GivenFinishing;
}

/** Printed by `--json`. */
export interface Cutout {
  readonly image: string;
  readonly file: string;
  readonly content_type: string;
  readonly width: number;
  readonly height: number;
  readonly size_bytes: number;
  readonly warnings: readonly string[];
  /** If the caller named one. */
  readonly models?: Job['models'];
  /** From the request to the file. */
  readonly duration_ms: number;
  readonly stages_ms: Readonly<Record<string, number>>;
}

interface Job {
  readonly job_id: string;
  readonly status: string;
  readonly status_url: string;
  readonly result?: {
    readonly url: string;
    readonly width: number;
    readonly height: number;
    readonly sizeBytes: number;
    readonly contentType: string;
    readonly warnings: readonly string[];
  };
  readonly models?: readonly { readonly name: string; readonly role: string }[];
  readonly error?: { readonly code: string; readonly detail: string };
}

interface Task {
  readonly image: string;
  readonly out: string;
  readonly format: OutputFormat;
  readonly model: string | undefined;
  readonly failWithoutSubject: boolean;
  readonly wishes: FinishingWishes;
}

/** @throws CommandError, ConfigError */
export async function cutout(
  options: CutoutOptions,
  terminal: Terminal,
  signal: AbortSignal,
  onStack: (stack: Stack) => void,
): Promise<Cutout[]> {
  const tasks = await planTasks(options);
  const given = serving(options.model, loadSupervisorConfig(), await findStackPorts());
  const dataDir = await mkdtemp(path.join(tmpdir(), 'matting-cutout-'));
  try {
    const config: SupervisorConfig = {
      ...given,
      host: '127.0.0.1',
      dataDir,
      nodeToken: undefined,
      baseUrl: undefined,
      env: Object.fromEntries(
        Object.entries(given.env).filter(
          ([name]) => !name.startsWith('MATTING_') || INHERITED_VARIABLES.has(name),
        ),
      ),
    };
    let startedAtMs = performance.now();
    const models = async (starting: AbortSignal) => {
      // A comparison of runtimes takes longer than one picture.
      await fetchModels(given, terminal, starting, ['--unmeasured']);
      startedAtMs = performance.now();
      terminal.activity('Starting a temporary service');
    };
    const say = (line: string) => terminal.line(`matting: ${line}`);
    const account = { name: 'cutout', credits: tasks.length };
    let apiKey: string | undefined;
    const onAccount = (made: Bootstrap) => {
      apiKey = made.apiKey;
    };
    const stack = await startStack(config, { models, account, onAccount, say }, signal);
    onStack(stack);
    try {
      if (apiKey === undefined) throw new CommandError('the data directory is not empty');
      terminal.line(`Service ready after ${seconds(performance.now() - startedAtMs)}`);
      const cutouts: Cutout[] = [];
      for (const task of tasks) {
        terminal.activity(`Cutting out ${task.image}`);
        const made = await cutOne(stack.localUrl, apiKey, task, signal);
        report(terminal, made);
        cutouts.push(made);
      }
      terminal.activity('Stopping the service');
      return cutouts;
    } finally {
      await stack.stop();
    }
  } finally {
    terminal.quiet();
    await rm(dataDir, { recursive: true, force: true });
  }
}

function serving(named: string | undefined, config: SupervisorConfig, ports: Ports) {
  const { MATTING_MODELS_OFFERED: _, ...env } = config.env;
  const model = named === env.MATTING_MODEL ? undefined : named;
  const node = { model, port: ports.node, httpPort: ports.nodeHttp };
  return { ...config, ports, nodes: [node], env } satisfies SupervisorConfig;
}

/** Finds all errors of the arguments before anything starts. */
async function planTasks(options: CutoutOptions): Promise<Task[]> {
  const images = options.images.length > 0 ? options.images : [DEMO_IMAGE];
  if (options.out !== undefined && images.length > 1) {
    throw new CommandError('--out takes one image; leave it out for several', 64);
  }
  const tasks: Task[] = [];
  for (const image of images) {
    const found = await stat(image).catch(() => undefined);
    if (found === undefined || !found.isFile())
      throw new CommandError(`no such file: ${image}`, 66);
    if (found.size > IMAGE_BYTES_MAX)
      throw new CommandError(`${image} is larger than 50 MB; use a smaller one`, 66);
    await requireImage(image, found.size);
    const out = options.out ?? `${path.parse(image).name}-cutout.png`;
    const format = formatOf(out);
    const wishes = await readFinishing(options.finishing ?? {}, format);
    await requireWritable(out);
    const { model, failWithoutSubject = false } = options;
    tasks.push({ image, out, format, model, failWithoutSubject, wishes });
  }
  const named = tasks.map(({ image, out }) => ({ image, output: out }));
  const [one, other] = (tasks.length > 1 && (await findCollision('.', [named]))) || [];
  if (one !== undefined && other !== undefined) {
    const both = `${one.image} and ${other.image} would both become ${one.output}`;
    throw new CommandError(`${both}; cut them out one by one, with --out`, 64);
  }
  return tasks;
}

function formatOf(out: string): OutputFormat {
  const format = parseOutputFormat(path.extname(out).slice(1));
  if (format !== undefined && format !== 'zip') return format;
  const endings = [...TRANSPARENT_FORMATS, 'jpg'].map(name => `.${name}`).join(', ');
  throw new CommandError(`${out} must end in one of ${endings}`, 64);
}

/** Refuses a wrong file before weights are fetched. */
async function requireImage(image: string, sizeBytes: number): Promise<void> {
  const file = await open(image);
  try {
    const read = async (offset: number, length: number) => {
      const { buffer, bytesRead } = await file.read(Buffer.alloc(length), 0, length, offset);
      return buffer.subarray(0, bytesRead);
    };
    if ((await readImageHeader(read, sizeBytes)) !== undefined) return;
    throw new CommandError(`${image}: ${await describeUnread(read, sizeBytes)}`, 65);
  } finally {
    await file.close();
  }
}

async function requireWritable(out: string): Promise<void> {
  const target = path.resolve(out);
  const folder = path.dirname(target);
  const found = await stat(folder).catch(() => undefined);
  if (!found?.isDirectory())
    throw new CommandError(`no such directory for ${out}; make it first`, 73);
  const existing = await stat(target).catch(() => undefined);
  if (existing?.isDirectory()) throw new CommandError(`${out} is a directory; name a file`, 73);
  await requireWritableName(target).catch((error: Error) => {
    throw new CommandError(`${out}: ${error.message}`, 73);
  });
}

async function cutOne(
  baseUrl: string,
  apiKey: string,
  task: Task,
  signal: AbortSignal,
): Promise<Cutout> {
  const headers = { authorization: `Bearer ${apiKey}`, 'idempotency-key': randomUUID() };
  const image = await readFile(task.image);
  const startedAtMs = performance.now();
  const body = formOf(image, task);
  let answer = await fetch(`${baseUrl}/v1/matting`, { method: 'POST', headers, body, signal });
  let job = (await answer.json()) as Job;
  while (answer.status === 202 || (answer.ok && !isFinal(job))) {
    await new Promise(resolve => setTimeout(resolve, POLL_MS));
    answer = await fetch(job.status_url, { headers, signal });
    job = (await answer.json()) as Job;
  }
  if (!answer.ok || job.result === undefined) throw new CommandError(failureOf(task.image, job));
  const download = await fetch(job.result.url, { signal });
  if (!download.ok) throw new CommandError(`cannot download the result: HTTP ${download.status}`);
  const bytes = Buffer.from(await download.arrayBuffer());
  const durationMs = performance.now() - startedAtMs;
  // The name never has half a file.
  const partial = partialName(task.out);
  try {
    await writeFile(partial, bytes);
    await rename(partial, task.out);
  } catch (error) {
    throw new CommandError(`cannot write ${task.out}: ${(error as Error).message}`, 73);
  } finally {
    await rm(partial, { force: true });
  }
  return {
    image: task.image,
    file: path.resolve(task.out),
    content_type: job.result.contentType,
    width: job.result.width,
    height: job.result.height,
    size_bytes: job.result.sizeBytes,
    warnings: job.result.warnings,
    ...(job.models !== undefined && { models: job.models }),
    duration_ms: Math.round(durationMs),
    stages_ms: parseServerTiming(answer.headers.get('server-timing') ?? ''),
  };
}

function formOf(image: Uint8Array<ArrayBuffer>, task: Task): FormData {
  const { format, model, failWithoutSubject, wishes } = task;
  const form = new FormData();
  form.append('output_format', format);
  if (model !== undefined) form.append('model', model);
  if (failWithoutSubject) form.append('no_subject', 'fail');
  for (const [field, text] of wishes.texts) form.append(field, text);
  const { backgroundFile } = wishes;
  if (backgroundFile !== undefined) {
    form.append('background_file', new Blob([Uint8Array.from(backgroundFile)]), 'background');
  }
  form.append('image_file', new Blob([image]), 'image');
  return form;
}

function isFinal(job: Job): boolean {
  return job.status === 'succeeded' || job.status === 'failed' || job.status === 'expired';
}

/** problem+json has code and detail itself, a failed job in its error. */
function failureOf(image: string, body: Job & { code?: string; detail?: string }): string {
  const failure = body.error ?? { code: body.code, detail: body.detail };
  return `${image}: ${failure.code ?? 'failed'}: ${failure.detail ?? 'no details'}`;
}

function report(terminal: Terminal, cutout: Cutout): void {
  const kilobytes = Math.ceil(cutout.size_bytes / 1000);
  terminal.line(`${cutout.image} -> ${cutout.file}`);
  const size = `${cutout.width} x ${cutout.height} px, ${cutout.content_type}, ${kilobytes} kB`;
  terminal.line(`  ${size}, ${seconds(cutout.duration_ms)} from request to file`);
  const stages = Object.entries(cutout.stages_ms).map(([name, ms]) => `${name} ${ms} ms`);
  if (cutout.warnings.length > 0) terminal.line(`  ${warnedOf(cutout.warnings)}`);
  if (stages.length > 0) terminal.line(`  ${stages.join(', ')}`);
}

/** `decode;dur=12.3, infer;dur=690` (W3C Server-Timing) in whole ms. */
function parseServerTiming(header: string): Record<string, number> {
  const stages = header
    .split(',')
    .map(item => /^\s*([\w-]+)\s*;\s*dur=([\d.]+)/.exec(item))
    .filter(match => match !== null);
  return Object.fromEntries(stages.map(match => [match[1], Math.round(Number(match[2]))]));
}

function seconds(ms: number): string {
  return `${(ms / 1000).toFixed(1)} s`;
}
