/** What finishing adds to a job, as columns and back. */
import type { Channels, Finishing } from '#contract/finishing.ts';
import { isTransparentFormat, OUTPUT_FORMATS, type OutputFormat } from '#contract/formats.ts';
import type { Job, JobBackground, JobInput } from '../../domain/job.ts';
import { queuedFramePixels } from '../../domain/queue-share.ts';
import type { JobsTable } from '../database/schema.ts';
import type { NewJob } from './job-store.ts';

/** The column `finishing`. What is not there is the default. */
interface StoredFinishing {
  /** A format that control planes from before finishing could not read in output_format. */
  readonly format?: OutputFormat;
  readonly channels?: Channels;
  readonly steps: Finishing;
}

type FinishingColumns = Pick<JobsTable, 'output_format' | 'finishing' | 'frame_pixels'>;

export function finishingColumns(job: NewJob): FinishingColumns {
  const { outputFormat, channels = 'rgba', finishing } = job;
  if (finishing === undefined) {
    if (channels === 'rgba' && isTransparentFormat(outputFormat)) {
      return { output_format: outputFormat, finishing: null, frame_pixels: null };
    }
    throw new Error(`a job for ${outputFormat}, ${channels} is one with finishing`);
  }
  const isKnown = isTransparentFormat(outputFormat);
  const stored: StoredFinishing = {
    ...(isKnown ? {} : { format: outputFormat }),
    ...(channels === 'rgba' ? {} : { channels }),
    steps: finishing,
  };
  return {
    output_format: isKnown ? outputFormat : 'png',
    finishing: JSON.stringify(stored),
    frame_pixels: queuedFramePixels(finishing, job.input),
  };
}

export function outputFormatFromRow(
  row: Pick<JobsTable, 'output_format' | 'finishing'>,
): OutputFormat {
  const value = read(row.finishing)?.format ?? row.output_format;
  const format = OUTPUT_FORMATS.find(known => known === value);
  if (format === undefined) throw new Error(`the database holds an unknown value: ${value}`);
  return format;
}

export function finishingFromRow(
  row: Pick<JobsTable, 'finishing'>,
): Pick<Job, 'channels' | 'finishing'> {
  const stored = read(row.finishing);
  return { channels: stored?.channels ?? 'rgba', finishing: stored?.steps ?? null };
}

function read(finishing: string | null): StoredFinishing | null {
  return finishing === null ? null : (JSON.parse(finishing) as StoredFinishing);
}

export function backgroundFromRow(
  row: Pick<JobsTable, 'background_url' | 'background'>,
): JobBackground | null {
  if (row.background_url === null && row.background === null) return null;
  return { url: row.background_url, input: backgroundInputFromRow(row) };
}

export function backgroundInputFromRow(row: Pick<JobsTable, 'background'>): JobInput | null {
  return row.background === null ? null : (JSON.parse(row.background) as JobInput);
}

export function backgroundColumn(input: JobInput | null): string | null {
  return input && JSON.stringify(input);
}
