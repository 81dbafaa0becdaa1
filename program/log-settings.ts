/** MATTING_LOG_*: both programs read the same variables. */
import type { EnvReader } from './env.ts';
import { LOG_LEVELS, type LogLevel } from './log.ts';
import { type LogSampling, parseLogSampling } from './log-sampling.ts';

export interface LogSettings {
  readonly logLevel: LogLevel;
  /** Undefined: every line is written. */
  readonly logSampling: LogSampling | undefined;
}

export function readLogSettings(reader: EnvReader): LogSettings {
  return {
    logLevel: reader.oneOf('MATTING_LOG_LEVEL', LOG_LEVELS, { default: 'info' }),
    logSampling: reader.parsed(
      'MATTING_LOG_SAMPLING',
      'two whole numbers from 1 to 1000000, as 100/50: how many lines of a message in a second, then every which',
      parseLogSampling,
      { default: undefined },
    ),
  };
}
