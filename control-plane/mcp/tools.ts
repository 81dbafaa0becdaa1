/** The tools as agents read them. What fields mean is said once, in the document of REST. */
import type { Tool } from '@modelcontextprotocol/sdk/types.js';
import { IMAGE_FIELDS } from './arguments.ts';

/** As the document of /v1 describes them; types with null, which is the same as absent. */
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
        'Cuts the subject out of an image and answers with a link to the result, good for 24 hours ' +
        'without a key: a PNG with transparency unless told otherwise. Give image_url where the ' +
        'image has an address, else image_base64; never both. Costs 1 credit where it succeeds; ' +
        'the same call within ten minutes of its end has the same result and costs nothing. Where the ' +
        'answer says that the job is not done, call get_job.',
      inputSchema: {
        type: 'object',
        properties: { ...fieldsOf(described), idempotency_key: IDEMPOTENCY_KEY },
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
      description: 'Waits for a job of remove_background and answers as that does. Costs nothing.',
      inputSchema: {
        type: 'object',
        properties: { job_id: { type: 'string', description: 'As remove_background named it.' } },
        required: ['job_id'],
        additionalProperties: false,
      },
      annotations: READS,
    },
    {
      name: 'get_account',
      title: 'Read the balance',
      description: 'How many credits the account has, and how many are reserved for open jobs.',
      inputSchema: NO_ARGUMENTS,
      annotations: READS,
    },
    {
      name: 'list_models',
      title: 'List the models',
      description:
        'The names that `model` of remove_background takes: what each is good for, its usual ' +
        'seconds and the terms of its licence. Without a name the default one is used.',
      inputSchema: NO_ARGUMENTS,
      annotations: READS,
    },
  ];
}

const IDEMPOTENCY_KEY = {
  type: 'string',
  description:
    'Any text of 1 to 128 printable ASCII characters, one for each image: a call with the same ' +
    'key is never charged twice, for 30 days. Leave it out to have it made of the arguments.',
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
