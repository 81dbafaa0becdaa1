/**
 * The import directions of the rooms that both programs share; directions.ts says what the table
 * means.
 */
import type { Directions } from './directions.ts';

export const SHARED: Directions = {
  bin: ['bin/remove', '#program', '#contract/finishing'],
  'bin/remove': ['bin', 'client/src'],
  'client/src': [],
  '#program': ['#program/tracing'],
  '#program/doctor': ['#program', '#program/tls'],
  '#program/ports': ['#contract', '#program'],
  '#program/tls': ['#program'],
  '#program/tracing': ['#contract', '#program'],
  '#contract': ['#contract/image-header', '#gen'],
  '#contract/finishing': ['#contract'],
  '#contract/image-header': ['#contract'],
};
