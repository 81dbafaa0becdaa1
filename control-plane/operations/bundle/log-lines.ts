/**
 * Lines of the programs' logs as a bundle has them: numbers and truth values of any field, texts of
 * the fields below alone, and those scrubbed. What is no line of a log is counted and left out.
 */
import { open, stat } from 'node:fs/promises';
import { scrubbed } from './scrub.ts';

/** Of the end of each file. */
export const LOG_BYTES_MAX = 5 * 1024 * 1024;
const FIELD = /^[A-Za-z][A-Za-z0-9_]{0,40}$/;
/** As `timings` and `limits` are; deeper than errors with their causes nothing is. */
const DEPTH_MAX = 3;

const TEXT_FIELDS: ReadonlySet<string> = new Set([
  'time',
  'msg',
  'program',
  'replicaId',
  'node',
  'version',
  'jobId',
  'nodeId',
  'reqId',
  'accountId',
  'mailId',
  'trace_id',
  'span_id',
  'route',
  'method',
  'code',
  'outcome',
  'state',
  'cause',
  'step',
  'signal',
  'meaning',
  'kind',
  'mode',
  'provider',
  'model',
  'plan',
  'selected',
  'precision',
  'engine',
  'stage',
  'command',
  'reason',
  'message',
  'type',
  'name',
  'stack',
  'syscall',
  'errno',
]);
/** Objects whose fields are kept by the same rules. */
const OBJECT_FIELDS: ReadonlySet<string> = new Set(['err', 'timings', 'cause', 'queue', 'nodes']);
/** 32 and 16 hexadecimal digits: nothing else is let through under these names. */
const TRACE = /^(?:[0-9a-f]{32}|[0-9a-f]{16})$/;

export interface BundledLog {
  readonly lines: readonly string[];
  /** No JSON, as a shell's or a crash's words: they may hold anything. */
  readonly leftOut: number;
}

/** Rejects with the system's error where the file cannot be read, and where it is no file. */
export async function readLog(file: string): Promise<BundledLog> {
  // Before it is opened: that waits for whoever writes into a pipe.
  if (!(await stat(file)).isFile()) {
    throw new Error('it is no file: write the lines into one first (journalctl -o cat > FILE)');
  }
  await using handle = await open(file, 'r');
  const { size } = await handle.stat();
  const start = Math.max(0, size - LOG_BYTES_MAX);
  const bytes = Buffer.alloc(Math.min(size, LOG_BYTES_MAX));
  const { bytesRead } = await handle.read(bytes, 0, bytes.length, start);
  const lines = bytes.toString('utf8', 0, bytesRead).split('\n');
  // Cut in its middle.
  if (start > 0) lines.shift();
  return bundled(lines.filter(line => line !== ''));
}

function bundled(lines: readonly string[]): BundledLog {
  const kept = lines.map(lineOf).filter(line => line !== undefined);
  return { lines: kept, leftOut: lines.length - kept.length };
}

function lineOf(line: string): string | undefined {
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch {
    return undefined;
  }
  if (typeof value !== 'object' || value === null || !('level' in value)) return undefined;
  return JSON.stringify(shown(value as Record<string, unknown>, 1));
}

function shown(fields: Readonly<Record<string, unknown>>, depth: number): Record<string, unknown> {
  const kept: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(fields)) {
    if (!FIELD.test(name)) continue;
    const seen = keptOf(name, value, depth);
    if (seen !== undefined) kept[name] = seen;
  }
  return kept;
}

function keptOf(name: string, value: unknown, depth: number): unknown {
  if (typeof value === 'number' || typeof value === 'boolean') return value;
  if (typeof value === 'string') {
    if (!TEXT_FIELDS.has(name)) return undefined;
    if (/^(trace|span)_id$/.test(name)) return TRACE.test(value) ? value : undefined;
    return scrubbed(value);
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return undefined;
  if (!OBJECT_FIELDS.has(name) || depth >= DEPTH_MAX) return undefined;
  return shown(value as Record<string, unknown>, depth + 1);
}
