import { ContractError } from '@matting/proto/contract/errors.ts';
import { parseFinishing } from '@matting/proto/contract/finishing/fields.ts';
import { FINISHING_FIELDS, type FinishingField } from '@matting/proto/contract/finishing/table.ts';
import type { OutputFormat } from '@matting/proto/contract/formats.ts';
import type { Command } from 'commander';
import { misuse } from 'matting-client/src/command/command-error.ts';
import { readBackground } from 'matting-client/src/command/options.ts';
import { FINISHING_OPTIONS } from 'matting-client/src/finishing-fields.ts';

/** From commander. */
export type GivenFinishing = Readonly<Record<string, string | boolean | undefined>> & {
  readonly backgroundFile?: string;
};

export interface FinishingWishes {
  /** By field, as in a form. */
  readonly texts: ReadonlyMap<FinishingField, string>;
  readonly backgroundFile: Uint8Array | undefined;
}

export function addFinishingOptions(command: Command): Command {
  for (const [name, [value, about]] of Object.entries(FINISHING_OPTIONS)) {
    command.option(`--${name} ${value}`.trim(), about);
  }
  return command;
}

/** Checks the fields before anything is sent. @throws CommandError */
export async function readFinishing(
  given: GivenFinishing,
  outputFormat: OutputFormat,
): Promise<FinishingWishes> {
  const named = FINISHING_FIELDS.flatMap(field => {
    const value = given[field.replace(/_(.)/g, (_, letter: string) => letter.toUpperCase())];
    return value === undefined ? [] : [[field, String(value)] as const];
  });
  const { backgroundFile } = given;
  try {
    parseFinishing(new Map(named), { outputFormat, backgroundFile: backgroundFile !== undefined });
  } catch (error) {
    if (!(error instanceof ContractError)) throw error;
    throw misuse(error.message);
  }
  return {
    texts: new Map(named),
    backgroundFile: backgroundFile === undefined ? undefined : await readBackground(backgroundFile),
  };
}
