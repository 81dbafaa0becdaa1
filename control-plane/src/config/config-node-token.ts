/** What nodes and control planes know each other by. */
import type { EnvReader } from '#program/env.ts';

export interface NodeTokenConfig {
  readonly nodeToken: string;
  /** Another that nodes may bring, while the fleet's is changed. */
  readonly nodeTokenAccepted: string | undefined;
}

/** Short tokens can be guessed over the network; metadata cannot carry blanks or controls. */
const NODE_TOKEN = /^[\x21-\x7e]{16,256}$/;
const FORM = '16 to 256 printable ASCII characters without blanks';

export function readNodeTokens(reader: EnvReader): NodeTokenConfig {
  return {
    nodeToken: reader.string('MATTING_NODE_TOKEN', {
      pattern: NODE_TOKEN,
      expected: `${FORM}, the same on every node`,
    }),
    nodeTokenAccepted: reader.string('MATTING_NODE_TOKEN_ACCEPTED', {
      pattern: NODE_TOKEN,
      expected: FORM,
      default: undefined,
    }),
  };
}
