import type { Size } from '@matting/proto/contract/finishing.ts';
import { ACTIVATIONS, FITS, INPUT_SIDE_MAX } from '@matting/serving/models/prepared-model.ts';
import { type Command, InvalidArgumentError, Option } from 'commander';
import type { Facts } from '../probing/probe-types.ts';
import { UsageError } from './cli-config.ts';

type Triple = readonly [number, number, number];

export interface GraphOptions extends Pick<Facts, 'size' | 'fit' | 'activation' | 'output'> {
  readonly mean?: Triple;
  readonly std?: Triple;
  readonly memoryMax?: number;
}

export function addGraphOptions(command: Command): Command {
  return command
    .option('--mean <r,g,b>', 'values to subtract, 0 to 255', parseTriple)
    .option('--std <r,g,b>', 'values to divide by', parseDivisors)
    .option('--size <side>', 'input size in pixels, N or WxH, if the graph takes any', parseSize)
    .addOption(new Option('--fit <how>', 'how to fit a picture into the input').choices(FITS))
    .addOption(
      new Option('--activation <what>', 'function to apply to the output').choices(ACTIVATIONS),
    )
    .option('--output <tensor>', 'output tensor with the matte')
    .option(
      '--memory-max <bytes>',
      'memory limit of the process that measures it, such as 9G',
      parseBytes,
    );
}

export function factsOfOptions(options: GraphOptions): Facts {
  const { mean, std, size, fit, activation, output } = options;
  if ((mean === undefined) !== (std === undefined)) {
    throw new UsageError('use --mean and --std together');
  }
  return {
    ...(mean !== undefined && std !== undefined && { normalisation: { mean, std } }),
    ...(size !== undefined && { size }),
    ...(fit !== undefined && { fit }),
    ...(activation !== undefined && { activation }),
    ...(output !== undefined && { output }),
  };
}

function parseTriple(text: string): Triple {
  const values = text.split(',').map(part => (part.trim() === '' ? Number.NaN : Number(part)));
  const [red, green, blue] = values.every(Number.isFinite) && values.length === 3 ? values : [];
  if (red !== undefined && green !== undefined && blue !== undefined) return [red, green, blue];
  throw new InvalidArgumentError('Use three numbers R,G,B, each 0 to 255.');
}

function parseDivisors(text: string): Triple {
  const values = parseTriple(text);
  if (values.every(value => value > 0)) return values;
  throw new InvalidArgumentError('Use three numbers R,G,B, each above 0.');
}

function parseSize(text: string): Size {
  const [, width, height] = /^(\d{1,5})(?:x(\d{1,5}))?$/.exec(text) ?? [];
  const size = { width: Number(width), height: Number(height ?? width) };
  const isSide = (side: number) => side >= 1 && side <= INPUT_SIDE_MAX;
  if (isSide(size.width) && isSide(size.height)) return size;
  throw new InvalidArgumentError(`Use N or WxH, each from 1 to ${INPUT_SIDE_MAX}.`);
}

const UNITS: Readonly<Record<string, number>> = { M: 1024 ** 2, G: 1024 ** 3 };

function parseBytes(text: string): number {
  const [, number, unit = ''] = /^(\d{1,5}(?:\.\d{1,3})?)([MG])$/.exec(text) ?? [];
  const factor = UNITS[unit];
  if (number !== undefined && factor !== undefined) return Math.round(Number(number) * factor);
  throw new InvalidArgumentError('Use a number with M or G, such as 4G.');
}
