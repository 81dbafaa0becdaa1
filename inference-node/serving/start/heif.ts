import { ConfigError } from '@matting/program/config-error.ts';
import type { Logger } from 'pino';
import {
  findHeifDecoder,
  HEIF_WAYS,
  type HeifPaths,
  remarksOf,
} from '../picture/children/find-heif-decoder.ts';
import type { HeifDecoder } from '../picture/children/heif-decoder.ts';
import type { PoolSettings } from './pool-settings.ts';

/**
 * Undefined: the node reads no HEIC.
 * @throws ConfigError if the decoder that MATTING_HEIF names is not there
 */
export async function chooseHeif(
  { heif: choice }: Pick<PoolSettings, 'heif'>,
  log: Pick<Logger, 'info' | 'warn'>,
  paths?: HeifPaths,
): Promise<HeifDecoder | undefined> {
  const { decoder, failures } = await findHeifDecoder(choice, paths);
  for (const reason of failures) log.warn({ reason }, 'a decoder of HEIC does not work');
  if (decoder === undefined) {
    if (choice === undefined || choice === 'off') return undefined;
    const expected = `${choice} only where ${HEIF_WAYS[choice]} works`;
    throw new ConfigError([{ variable: 'MATTING_HEIF', expected }]);
  }
  const { kind, version } = decoder;
  log.info({ kind, version }, 'HEIC is read');
  for (const reason of remarksOf(decoder)) log.warn({ reason }, 'HEIC is read at a risk');
  return decoder;
}
