/** Agents read the tools so. Only the document of REST says what the fields mean. */
import type { Tool } from '@modelcontextprotocol/sdk/types.js';
import { IMAGE_FIELDS } from './arguments.ts';

/** The document of /v1 describes the fields so; types include null, which is the same as absent. */
export interface DescribedFields {
  readonly [field: string]: {
    readonly type: string | readonly string[];
    readonly description: string;
    readonly examples?: readonly unknown[];
  };
}

const NO_ARGUMENTS = { type: 'object', properties: {}, additionalProperties: false } as const;
const READS = { readOnlyHint: true, openWorldHint: false };

export function toolsOf(described: DescribedFields): Tool[] {
  return [
    {
      name: 'remove_background',
      title: 'Remove the background of an image',
      description:
        'Cuts the subject out of an image. The answer has a link to the result, a transparent PNG ' +
        'by default. The link needs no key and works for 24 hours. Send image_url if the image has ' +
        'a public address, otherwise image_base64; never both. A success costs 1 credit. The same ' +
        'call within ten minutes of its end returns the same result at no cost. If the answer says ' +
        'that the job is not done, call get_job.',
      inputSchema: {
        type: 'object',
        properties: { ...fieldsOf(described), idempotency_key: IDEMPOTENCY_KEY, preview: PREVIEW },
        additionalProperties: false,
      },
      annotations: {
        readOnlyHint: false,
        destructiveHint: false,
        idempotentHint: true,
        openWorldHint: true,
      },
    },
    {
      name: 'get_job',
      title: 'Wait for a job',
      description: 'Waits for a job of remove_background and gives the same answer. Costs nothing.',
      inputSchema: {
        type: 'object',
        properties: {
          job_id: { type: 'string', description: 'The job_id from remove_background.' },
          preview: PREVIEW,
        },
        required: ['job_id'],
        additionalProperties: false,
      },
      annotations: READS,
    },
    {
      name: 'get_account',
      title: 'Read the balance',
      description: 'Returns the available credits of the account and those reserved for open jobs.',
      inputSchema: NO_ARGUMENTS,
      annotations: READS,
    },
    {
      name: 'list_models',
      title: 'List the models',
      description:
        'Lists the names for `model` of remove_background: what each is good for, its usual time ' +
        'in seconds and its licence. Without `model` the service uses the default.',
      inputSchema: NO_ARGUMENTS,
      annotations: READS,
    },
  ];
}

const IDEMPOTENCY_KEY = {
  type: 'string',
  description:
    'Any text of 1 to 128 printable ASCII characters, one per image. Calls with the same key ' +
    'within 30 days are charged once. Without it the service derives a key from the arguments.',
};

const PREVIEW = {
  type: 'boolean',
  description:
    'true adds a thumbnail of the result (WebP, at most 160 pixels a side) to the answer.',
};

/** One type each: agents' own formats know no lists of them. A test of REST has all described. */
function fieldsOf(described: DescribedFields): Record<string, object> {
  const entries = IMAGE_FIELDS.map(name => {
    const { type, description, examples } = described[name]!;
    const [first] = [type].flat();
    return [name, { type: first, description, ...(examples && { examples }) }];
  });
  return Object.fromEntries(entries);
}
