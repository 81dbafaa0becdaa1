/** Writes client/src/finishing-fields.ts of the table of finishing: the client imports no other package. */
import { FINISHING_FIELDS, fieldKind, rowOf } from '../../proto/contract/finishing/table.ts';

const HEAD = `/**
 * The fields of finishing. \`make generate\` writes this file from the rows of
 * proto/contract/finishing/table.json.
 */
`;
/** An option of the command alone, which reads the file. */
const FILE = "  'background-file': ['<file>', 'put a picture from this machine behind it'],";

export function clientFields(): string {
  const types = FINISHING_FIELDS.map(field => {
    const { choice, client } = rowOf(field);
    const kind = fieldKind(field);
    const type = choice?.map(quoted).join(' | ') ?? (kind === 'text' ? 'string' : kind);
    return `  /** ${client} */\n  readonly ${field}?: ${type} | undefined;`;
  });
  const options = FINISHING_FIELDS.map(field => {
    const name = field.replaceAll('_', '-');
    const option = `  ${name === field ? name : quoted(name)}: [${rowOf(field).command.map(quoted).join(', ')}],`;
    return field === 'background_url' ? `${option}\n${FILE}` : option;
  });
  return `${HEAD}export interface FinishingFields {
${types.join('\n')}
}

/** Each option by its name: its value, which a switch does not have, and its meaning. */
export const FINISHING_OPTIONS = {
${options.join('\n')}
} as const;
`;
}

function quoted(text: string): string {
  return `'${text.replaceAll("'", String.raw`\'`)}'`;
}
