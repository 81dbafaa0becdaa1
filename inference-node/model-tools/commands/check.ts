/** `models check`: what a probe finds out of an ONNX file, and its cut-outs. */
import { readFile, writeFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import type { Writable } from 'node:stream';
import { diskError } from '@matting/serving/models/model-error.ts';
import { type RgbaPicture, readPicture } from '@matting/serving/picture/in-process.ts';
import type { Command } from 'commander';
import type { Probe, ProbeLimits, ProbeWishes } from '../probing/probe.ts';
import { rangeText } from '../probing/verdict.ts';
import type { CommandContext } from './cli-config.ts';
import { addGraphOptions, factsOfOptions, type GraphOptions } from './graph-options.ts';

interface ModelsCheckOptions extends GraphOptions {
  readonly image?: string;
  readonly out: string;
  readonly bgr?: boolean;
}

export function addCheckCommand(models: Command, { config, signal }: CommandContext): void {
  const check = models
    .command('check')
    .description('test an ONNX file in a process with limits, and write a cut-out')
    .argument(
      '<file>',
      'ONNX model that turns an RGB picture, with or without a trimap, into a matte',
    )
    .option('--image <file>', 'picture to cut out (default: painted pictures)')
    .option('--out <file>', 'PNG file for the cut-out', 'check.png')
    .option('--bgr', 'the input is BGR, not RGB');
  addGraphOptions(check).action(async (file: string, options: ModelsCheckOptions) => {
    const { childEnv } = config();
    await modelsCheck(file, options, { childEnv, signal }, process.stdout);
  });
}

/** @throws ModelError `settings` where options and graph do not fit, `prepare` where it fails */
export async function modelsCheck(
  file: string,
  options: ModelsCheckOptions,
  limits: ProbeLimits,
  out: Writable,
): Promise<void> {
  // Imported late: it loads slowly, and no other command needs it.
  const { probeGraph } = await import('../probing/probe-graph.ts');
  const { memoryMax: memoryMaxBytes, out: cutout } = options;
  const bounds = { ...limits, ...(memoryMaxBytes !== undefined && { memoryMaxBytes }) };
  const probe = await probeGraph(resolve(file), await wishesOf(options), bounds);
  for (const line of describe(probe)) out.write(`${line}\n`);
  const files = await writeCutouts(resolve(cutout), probe);
  for (const [at, of] of probe.shown.entries()) {
    out.write(`cut-out  ${files[at]}: normalised by ${of}\n`);
  }
}

/** Writes one by each normalisation: name.png, name-2.png and so on. @returns their paths */
export async function writeCutouts(
  first: string,
  { cutouts }: Pick<Probe, 'cutouts'>,
): Promise<readonly string[]> {
  const files = cutouts.map((_, at) =>
    at === 0 ? first : first.replace(/(\.png)?$/i, `-${at + 1}.png`),
  );
  for (const [at, file] of files.entries()) await writeFile(file, cutouts[at] ?? '');
  return files;
}

async function wishesOf(options: ModelsCheckOptions): Promise<ProbeWishes> {
  const { bgr, image } = options;
  return {
    ...factsOfOptions(options),
    ...(bgr && { colourOrder: 'bgr' as const }),
    ...(image !== undefined && { picture: await readImage(image) }),
  };
}

async function readImage(path: string): Promise<RgbaPicture> {
  const bytes = await readFile(path).catch(error => {
    throw diskError(error, 'read', path);
  });
  return await readPicture(bytes);
}

function describe(probe: Probe): readonly string[] {
  const { graph, range, activation, inverted, multipleOf, seconds } = probe;
  const gigabytes = (bytes: number) => `${(bytes / 1e9).toFixed(2)} GB`;
  const sides = multipleOf === 1 ? 'of any size' : `with sides in multiples of ${multipleOf}`;
  const sizes = graph.dynamic ? `takes pictures ${sides}` : 'takes no other';
  return [
    ...probe.inputs.map(line => `input    ${line}`),
    ...probe.outputs.map(line => `output   ${line}`),
    `size     ${graph.inputWidth} x ${graph.inputHeight}; ${sizes}`,
    `values   ${rangeText(range)}; activation ${activation ?? 'unknown'}${inverted ? ', inverted' : ''}`,
    `memory   ${gigabytes(probe.peakBytes)} at peak, ${gigabytes(probe.loadedBytes)} loaded`,
    `seconds  ${seconds.toFixed(2)}`,
    ...(graph.trimap ? ['role     refine: takes a trimap and refines another matte'] : []),
    ...(graph.inputType === 'uint8' ? ['input    normalised by the graph itself'] : []),
    ...probe.warnings.map(line => `warning  ${line}`),
  ];
}
