import type { EnvReader } from '@matting/program/env.ts';
import { Followed, type FollowLog } from '@matting/program/followed-files.ts';
import {
  type Listed,
  listNow,
  nodeTokensNow,
  parseToken,
  readListFile,
  TOKEN_FORM,
} from '@matting/program/tokens.ts';
import type { CallerToken, KnownTokens } from './callers.ts';

const FORM = `name:token, the name of up to 64 letters, digits, ".", "_", "-", the token ${TOKEN_FORM}`;
/** A service that calls directly has one; more than a handful need a control plane. */
const CALLER_TOKENS_MAX = 64;

const CALLER_TOKENS = {
  variable: 'MATTING_NODE_CALLER_TOKENS_FILE',
  form: FORM,
  parse: parseCallerToken,
  separator: ',',
  itemsMin: 0,
  itemsMax: CALLER_TOKENS_MAX,
};

interface TokenSettings {
  readonly nodeTokens: Listed<string>;
  readonly callerTokens: Listed<CallerToken>;
}

export function readCallerTokens(
  reader: EnvReader,
  nodeTokens: Listed<string>,
): Listed<CallerToken> {
  const listed = readListFile(reader, CALLER_TOKENS, {
    about: `A file of the callers that use the node [directly by gRPC](grpc.md), and their tokens.
      Lines that begin with \`#\` are comments. The node
      [follows the file](operate.md#change-settings-without-a-restart).`,
  }) ?? { items: [], file: undefined };
  const fault = faultOf({ fleet: nodeTokens.items, direct: listed.items });
  if (fault !== undefined) reader.problem(CALLER_TOKENS.variable, fault);
  return listed;
}

export function followTokens(
  { nodeTokens, callerTokens }: TokenSettings,
  log: FollowLog,
  know: (tokens: KnownTokens) => void,
): Followed<KnownTokens> | undefined {
  if (nodeTokens.file === undefined && callerTokens.file === undefined) return undefined;
  const read = async (): Promise<KnownTokens> => {
    const fleet = await nodeTokensNow(nodeTokens);
    const direct = await listNow(callerTokens, CALLER_TOKENS);
    const fault = faultOf({ fleet, direct });
    if (fault === undefined) return { fleet, direct };
    throw new Error(`${CALLER_TOKENS.variable}: the file is not ${fault}`);
  };
  return new Followed({ fleet: nodeTokens.items, direct: callerTokens.items }, read, {
    what: 'token files',
    log,
    onChange: tokens => {
      know(tokens);
      const { fleet, direct } = tokens;
      log.info({ nodeTokens: fleet.length, callerTokens: direct.length }, 'token files changed');
    },
  });
}

/** Continues "must be ". */
function faultOf({ fleet, direct }: KnownTokens): string | undefined {
  const names = new Set(direct.map(({ name }) => name));
  const tokens = new Set(direct.map(({ token }) => token));
  if (names.size < direct.length || tokens.size < direct.length) {
    return 'a list in which names and tokens differ';
  }
  // Otherwise a direct caller would count as a control plane.
  return fleet.some(token => tokens.has(token)) ? 'other tokens than the fleet’s own' : undefined;
}

function parseCallerToken(text: string): CallerToken | undefined {
  const [, name, given] = /^([A-Za-z0-9._-]{1,64}):(.+)$/.exec(text) ?? [];
  const token = given === undefined ? undefined : parseToken(given);
  return name === undefined || token === undefined ? undefined : { name, token };
}
