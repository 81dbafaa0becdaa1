/**
 * JPEG XL through libjxl's own programs, djxl and cjxl (Debian: libjxl-tools), for what WebAssembly
 * has not the memory for. Each run is a process of its own under limits of memory and processor
 * time that the kernel holds, and dies with its worker.
 *
 * Pixels and files pass through temporary files without a name: the programs want to seek in what
 * they read, and nothing is left behind whoever is killed. At 100 MP they take 0.4 GB of TMPDIR.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, lstatSync, mkdirSync, readlinkSync, symlinkSync } from 'node:fs';
import { type FileHandle, open, unlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { ContractError } from '#contract/errors.ts';
import { budgetFor, CPU_MS_BUDGET, RESIDENT_BYTES_BUDGET } from './budgets.ts';
import type { RawPixels } from './codec-sharp.ts';

const DJXL = '/usr/bin/djxl';
const CJXL = '/usr/bin/cjxl';
/** Of util-linux: has the kernel kill the program when its parent dies. */
const SETPRIV = '/usr/bin/setpriv';
const SHELL = '/bin/sh';

/** Descriptors of the program, as it names them itself. */
const INPUT = '/proc/self/fd/3';
const OUTPUT = '/proc/self/fd/4';
const LIMITED = 'ulimit -v "$1" && ulimit -t "$2" && shift 2 && exec "$@"';

/** What it says of a failure; the rest is not read. */
const SAID_BYTES_MAX = 1000;
/** Read at once of decoded pixels. */
const PIECE_PIXELS = 1_000_000;
const HEADER_BYTES_MAX = 200;

let there: boolean | undefined;

/** Asked once: a node says at its start what it can do. */
export function hasJxlTools(): boolean {
  there ??= [DJXL, CJXL, SETPRIV, SHELL, '/proc/self/fd'].every(existsSync);
  return there;
}

/** RGBA, upright, in the file's own colours, 8 bits. */
export async function decodeWithDjxl(
  file: Buffer,
  { width, height }: { readonly width: number; readonly height: number },
): Promise<Uint8Array> {
  const [input, output] = [await openNameless(), await openNameless()];
  try {
    await writeAll(input, file);
    // It knows the format by the name it writes to, and of the three (PGM, PPM, PAM) it takes what
    // the picture needs.
    const target = requireLink();
    // Its --bits_per_sample spoils 16 bits (djxl 0.7): what it writes is brought to 8 here.
    const options = ['--num_threads=1', '--quiet'];
    const command = [DJXL, INPUT, target, ...options];
    const failure = await runLimited(command, input, output, width * height);
    if (failure !== undefined) {
      throw new ContractError('PROCESSING_FAILED', 'the image is damaged or cannot be decoded', {
        cause: failure,
      });
    }
    return await readPixels(output, width, height);
  } finally {
    await Promise.all([input.close(), output.close()]);
  }
}

export interface CjxlOptions {
  /** 0 is without loss. */
  readonly distance: number;
  readonly effort: number;
}

/** @throws Error where the program fails, which is not the picture's fault. */
export async function encodeWithCjxl(
  { data, width, height, channels }: RawPixels,
  { distance, effort }: CjxlOptions,
): Promise<Buffer> {
  const [input, output] = [await openNameless(), await openNameless()];
  try {
    const kind = channels === 4 ? 'RGB_ALPHA' : 'GRAYSCALE';
    const fields = `WIDTH ${width}\nHEIGHT ${height}\nDEPTH ${channels}\nMAXVAL 255`;
    await writeAll(input, Buffer.from(`P7\n${fields}\nTUPLTYPE ${kind}\nENDHDR\n`), data);
    const colours = channels === 4 ? 'RGB_D65_SRG_Rel_SRG' : 'Gra_D65_Rel_SRG';
    const quality = ['-d', String(distance), '-e', String(effort)];
    // Without -R 0 alpha is as lossy as the colours (cjxl 0.7).
    const options = [
      ...quality,
      '-R',
      '0',
      '-x',
      `color_space=${colours}`,
      '--num_threads=0',
      '--quiet',
    ];
    const command = [CJXL, INPUT, OUTPUT, ...options];
    const failure = await runLimited(command, input, output, width * height);
    if (failure !== undefined) throw new Error(`cjxl failed: ${failure.message}`);
    return await output.readFile();
  } finally {
    await Promise.all([input.close(), output.close()]);
  }
}

let nextName = 0;

/** A file that is gone with its last descriptor. */
async function openNameless(): Promise<FileHandle> {
  const name = path.join(requireFolder(), `${process.pid}-${nextName++}`);
  // Exclusive: whatever lies there already is not ours to write into.
  const handle = await open(name, 'wx+', 0o600);
  await unlink(name);
  return handle;
}

async function writeAll(handle: FileHandle, ...parts: Buffer[]): Promise<void> {
  let position = 0;
  for (const part of parts) {
    for (let at = 0; at < part.length; ) {
      const { bytesWritten } = await handle.write(part, at, part.length - at, position);
      at += bytesWritten;
      position += bytesWritten;
    }
  }
}

/** Of this user alone: others must not put their links here. */
function requireFolder(): string {
  const user = process.getuid?.() ?? 0;
  const folder = path.join(tmpdir(), `matting-jxl-${user}`);
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const { uid, mode } = lstatSync(folder);
  if (uid !== user || (mode & 0o022) !== 0) {
    throw new Error(`${folder} is not this user's alone`);
  }
  return folder;
}

/** One for all: a name for the descriptor, since the program looks at the name's end. */
function requireLink(): string {
  const link = path.join(requireFolder(), 'pixels.ppm');
  try {
    symlinkSync(OUTPUT, link);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  }
  if (readlinkSync(link) !== OUTPUT) throw new Error(`${link} leads elsewhere`);
  return link;
}

/** Undefined, or why it failed. */
async function runLimited(
  command: readonly string[],
  input: FileHandle,
  output: FileHandle,
  pixels: number,
): Promise<Error | undefined> {
  const megapixels = pixels / 1e6;
  const memoryKib = Math.ceil(budgetFor(RESIDENT_BYTES_BUDGET, megapixels) / 1024);
  const cpuS = Math.ceil(budgetFor(CPU_MS_BUDGET, megapixels) / 1000);
  const limited = [SHELL, '-c', LIMITED, 'sh', String(memoryKib), String(cpuS), ...command];
  const child = spawn(SETPRIV, ['--pdeathsig', 'KILL', ...limited], {
    env: {},
    stdio: ['ignore', 'ignore', 'pipe', input.fd, output.fd],
  });
  let said = '';
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    said = (said + text).slice(0, SAID_BYTES_MAX);
  });
  const [code, signal] = (await once(child, 'close')) as [number | null, string | null];
  return code === 0 ? undefined : new Error(`${signal ?? code}: ${said.trim()}`);
}

async function readPixels(output: FileHandle, width: number, height: number): Promise<Uint8Array> {
  const { buffer: head } = await output.read(Buffer.alloc(HEADER_BYTES_MAX), 0, undefined, 0);
  const { channels, sampleMax, headerBytes } = parseHeader(head, width, height);
  // At once of its own, so that it can be seen as words.
  const rgba = new Uint8Array(width * height * 4);
  const pixels = width * height;
  const pixelBytes = channels * (sampleMax > 255 ? 2 : 1);
  const piece = Buffer.alloc(Math.min(PIECE_PIXELS, pixels) * pixelBytes);
  for (let done = 0; done < pixels; ) {
    const wanted = Math.min(PIECE_PIXELS, pixels - done);
    const read = piece.subarray(0, wanted * pixelBytes);
    await readExactly(output, read, headerBytes + done * pixelBytes);
    const samples = sampleMax > 255 ? joinBytes(read, sampleMax) : read;
    if (sampleMax < 255) scaleUp(samples, sampleMax);
    spread(samples, channels, rgba.subarray(done * 4, (done + wanted) * 4));
    done += wanted;
  }
  return rgba;
}

/** Of two bytes each, the higher first; the result is in the same memory. */
function joinBytes(samples: Buffer, sampleMax: number): Buffer {
  const count = samples.length / 2;
  for (let i = 0; i < count; i++) {
    samples[i] = (((samples[2 * i] << 8) | samples[2 * i + 1]) * 255) / sampleMax + 0.5;
  }
  return samples.subarray(0, count);
}

async function readExactly(handle: FileHandle, into: Buffer, position: number): Promise<void> {
  for (let at = 0; at < into.length; ) {
    const { bytesRead } = await handle.read(into, at, into.length - at, position + at);
    if (bytesRead === 0) throw badOutput();
    at += bytesRead;
  }
}

function badOutput(): ContractError {
  return new ContractError('PROCESSING_FAILED', 'the image is damaged or cannot be decoded', {
    cause: new Error('djxl wrote another picture than the header says'),
  });
}

function scaleUp(samples: Buffer, sampleMax: number): void {
  for (let i = 0; i < samples.length; i++) samples[i] = (samples[i] * 255) / sampleMax + 0.5;
}

type Channels = 1 | 2 | 3 | 4;

/** Of what djxl writes: PGM and PPM on three lines, PAM with a line a field. */
function parseHeader(
  head: Buffer,
  width: number,
  height: number,
): { readonly channels: Channels; readonly sampleMax: number; readonly headerBytes: number } {
  const text = head.toString('latin1');
  const match =
    /^P(?<kind>[56])\n(?<width>\d+) (?<height>\d+)\n(?<max>\d+)\n/.exec(text) ??
    /^P7\nWIDTH (?<width>\d+)\nHEIGHT (?<height>\d+)\nDEPTH (?<depth>[1-4])\nMAXVAL (?<max>\d+)\n.*\nENDHDR\n/.exec(
      text,
    );
  const fields = match?.groups;
  const sampleMax = Number(fields?.max);
  const isSame = Number(fields?.width) === width && Number(fields?.height) === height;
  if (match === null || fields === undefined || !isSame || !(sampleMax >= 1)) throw badOutput();
  const channels = fields.kind === undefined ? Number(fields.depth) : fields.kind === '5' ? 1 : 3;
  return { channels: channels as Channels, sampleMax, headerBytes: match[0].length };
}

function spread(from: Buffer, channels: Channels, rgba: Uint8Array): void {
  const isGrey = channels <= 2;
  const hasAlpha = channels % 2 === 0;
  for (let at = 0, out = 0; out < rgba.length; at += channels, out += 4) {
    rgba[out] = from[at];
    rgba[out + 1] = isGrey ? from[at] : from[at + 1];
    rgba[out + 2] = isGrey ? from[at] : from[at + 2];
    rgba[out + 3] = hasAlpha ? from[at + channels - 1] : 255;
  }
}
