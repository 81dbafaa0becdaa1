/** What of the machine limits a node: cores, programs it may use, room for its cache. */
import { constants } from 'node:fs';
import { access, stat, statfs } from 'node:fs/promises';
import { type Finding, failure, ok, reasonOf, warning } from '#program/doctor/findings.ts';
import { openFilesFinding } from '#program/doctor/open-files-finding.ts';
import { readCpuShare } from '../engine/choice/cpu-share.ts';
import { detectInstructionSet } from '../models/preparing/instruction-set.ts';
import { hasJxlTools } from '../picture/jxl-limit.ts';

/** Twice as many as its gRPC port's connections. */
const OPEN_FILES_MIN = 2560;
/** Weights and prepared models of the largest plan take about half of it. */
const FREE_BYTES_WARN = 1e9;

export async function machineFindings(): Promise<readonly Finding[]> {
  const share = await readCpuShare();
  const cores = `${share} cores, ${await detectInstructionSet()}`;
  const few = warning('machine', cores, 'a quota below one core makes every picture slow');
  return [
    share < 1 ? few : ok('machine', cores),
    hasJxlTools()
      ? ok('machine', 'JPEG XL of any size: libjxl-tools are installed')
      : warning(
          'machine',
          'JPEG XL above 40 megapixels, and of CMYK, is refused',
          'install libjxl-tools (and util-linux), where such files are expected',
        ),
    openFilesFinding(OPEN_FILES_MIN),
  ];
}

export async function diskFindings(modelDir: string): Promise<readonly Finding[]> {
  const found = await stat(modelDir).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return undefined;
    throw error;
  });
  if (found === undefined) {
    const advice = 'matting models fetch makes it, as the user of the node';
    return [warning('disk', `${modelDir} is not there yet`, advice)];
  }
  try {
    await access(modelDir, constants.R_OK | constants.X_OK);
  } catch (error) {
    return [failure('disk', reasonOf(error), 'give the node’s user the right to read it')];
  }
  const { bavail, bsize } = await statfs(modelDir);
  const room = `${((bavail * bsize) / 1e9).toFixed(1)} GB are free at ${modelDir}`;
  if (bavail * bsize >= FREE_BYTES_WARN) return [ok('disk', room)];
  return [warning('disk', room, 'make room: another model could not be fetched or prepared')];
}
