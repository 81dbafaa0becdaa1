/** `models check`: what a probe finds out of an ONNX file, and its cut-outs. */
import { readFile, writeFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import type { Writable } from 'node:stream';
import { diskError } from '@matting/serving/models/model-error.ts';
import { type RgbaPicture, readPicture } from '@matting/serving/picture/in-process.ts';
import type { Command } from 'commander';
import type { Probe, ProbeLimits, ProbeWishes } from '../probing/probe.ts';
import { type CommandContext, UsageError } from './cli-config.ts';
import { addGraphOptions, type GraphOptions } from './graph-options.ts';

export interface ModelsCheckOptions extends GraphOptions {
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
  // It takes a while to load, and the other commands need none of it.
  const { probeGraph } = await import('../probing/probe-graph.ts');
  const { memoryMax: memoryMaxBytes, out: cutout } = options;
  const bounds = { ...limits, ...(memoryMaxBytes !== undefined && { memoryMaxBytes }) };
  const probe = await probeGraph(resolve(file), await wishesOf(options), bounds);
  const sheet = cutout.replace(/(\.png)?$/i, '.sheet.png');
  await writeFile(cutout, probe.cutout);
  await writeFile(sheet, probe.sheet);
  for (const line of describe(probe)) out.write(`${line}\n`);
  out.write(`cut-out  ${resolve(cutout)}\n`);
  out.write(
    `sheet    ${resolve(sheet)}: the picture, then normalised by ${probe.shown.join('; ')}\n`,
  );
}

async function wishesOf(options: ModelsCheckOptions): Promise<ProbeWishes> {
  const { mean, std, size, fit, activation, output, bgr, image } = options;
  if ((mean === undefined) !== (std === undefined)) {
    throw new UsageError('use --mean and --std together');
  }
  return {
    ...(mean !== undefined && std !== undefined && { mean, std }),
    ...(size !== undefined && { size }),
    ...(fit !== undefined && { fit }),
    ...(activation !== undefined && { activation }),
    ...(output !== undefined && { output }),
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
  const values = range.map(value => value.toPrecision(3)).join(' to ');
  return [
    ...probe.inputs.map(line => `input    ${line}`),
    ...probe.outputs.map(line => `output   ${line}`),
    `size     ${graph.inputWidth} x ${graph.inputHeight}; ${sizes}`,
    `values   ${values}; activation ${activation ?? 'unknown'}${inverted ? ', inverted' : ''}`,
    `memory   ${gigabytes(probe.peakBytes)} at peak, ${gigabytes(probe.loadedBytes)} loaded`,
    `seconds  ${seconds.toFixed(2)}`,
    ...(graph.trimap ? ['role     refine: takes a trimap and refines another matte'] : []),
    ...(probe.normalisesItself ? ['input    normalised by the graph itself'] : []),
    ...probe.warnings.map(line => `warning  ${line}`),
  ];
}
