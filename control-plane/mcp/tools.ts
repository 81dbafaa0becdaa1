/** The tools as agents see them. Descriptions of fields come from the OpenAPI document. */
import { FINISHING_FIELDS, rowOf } from '@matting/proto/contract/finishing/table.ts';
import { TRANSPARENT_FORMATS } from '@matting/proto/contract/formats.ts';
import { isHintList } from '@matting/proto/contract/hints-fields.ts';
import type { Tool } from '@modelcontextprotocol/server';
import { CORRECTION_FIELDS, IMAGE_FIELDS } from './arguments.ts';

/** Part of the OpenAPI document. Its types include null, which counts as absent. */
export interface DescribedFields {
  readonly [field: string]: {
    readonly type: string | readonly string[];
    readonly description: string;
    readonly examples?: readonly unknown[];
  };
}

const NO_ARGUMENTS = { type: 'object', properties: {}, additionalProperties: false } as const;
const READS = { readOnlyHint: true, openWorldHint: false };
const MAKES = {
  readOnlyHint: false,
  destructiveHint: false,
  idempotentHint: true,
  openWorldHint: true,
};

interface Offered {
  readonly models: readonly string[];
  readonly corrections: boolean;
}

export function toolsOf(described: DescribedFields, offered: Offered): Tool[] {
  return [
    removeBackground(described, offered),
    CREATE_UPLOAD,
    ...(offered.corrections ? [correctCutout(described)] : []),
    ...READING_TOOLS,
  ];
}

function removeBackground(described: DescribedFields, offered: Offered): Tool {
  return {
    name: 'remove_background',
    title: 'Remove the background of an image',
    description:
      'Cuts the subject out of an image. The answer has a link to the result, a transparent PNG ' +
      'by default. The link needs no key and works for 24 hours. Send image_url if the image has ' +
      'a public address. For a file on this machine call create_upload, and send its image_id. ' +
      'A success costs 1 credit. The same ' +
      'call within ten minutes of its end returns the same result at no cost. If the answer says ' +
      'that the job is not done, call get_job. For a picture of a shop send output_format jpeg, ' +
      'background white, crop true, scale 85%, output_width and output_height 2000, enlarge false. ' +
      'Add shadow drop where a shadow is wanted.',
    inputSchema: {
      type: 'object',
      properties: {
        ...fieldsOf(described, offered),
        image_id: IMAGE_ID,
        idempotency_key: IDEMPOTENCY_KEY,
        preview: PREVIEW,
      },
      additionalProperties: false,
    },
    annotations: MAKES,
  };
}

function correctCutout(described: DescribedFields): Tool {
  return {
    name: 'correct_cutout',
    title: 'Correct a cut-out',
    description:
      'Makes a new result of a job that was sent with correctable true, at no cost and without a ' +
      'model: say in keep and erase what belongs to the subject and what does not, or change the ' +
      'background, the crop or the format. What you leave out stays as in that job. The answer is ' +
      'like that of remove_background, and can be corrected again, 20 times in all.',
    inputSchema: {
      type: 'object',
      properties: {
        job_id: { type: 'string', description: 'The job_id of the result to correct.' },
        ...correctionFieldsOf(described),
        idempotency_key: IDEMPOTENCY_KEY,
        preview: PREVIEW,
      },
      required: ['job_id'],
      additionalProperties: false,
    },
    annotations: MAKES,
  };
}

const CREATE_UPLOAD: Tool = {
  name: 'create_upload',
  title: 'Send a file',
  description:
    'Gives a one-time address for a file of this machine, of at most 50 MB, with the curl command ' +
    'that sends it there, and the image_id for remove_background. Costs nothing. The address works ' +
    'for 10 minutes, the image_id for 30, with this API key alone. Everybody who has the address ' +
    'can send the file.',
  inputSchema: NO_ARGUMENTS,
  annotations: { readOnlyHint: false, destructiveHint: false, openWorldHint: false },
};

const IMAGE_ID = {
  type: 'string',
  description: 'The image_id of create_upload, once the file has been sent to its address.',
};

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

const READING_TOOLS: readonly Tool[] = [
  {
    name: 'get_job',
    title: 'Wait for a job',
    description: 'Waits for the job of another tool and gives the same answer. Costs nothing.',
    inputSchema: {
      type: 'object',
      properties: {
        job_id: { type: 'string', description: 'The job_id from the answer of that tool.' },
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

/** Descriptions for agents, of fields that the OpenAPI document describes for programs. */
const WORDS: Readonly<Record<string, string>> = {
  model: 'A name of list_models. Without it the service uses its default.',
  correctable:
    'true: the service keeps the image and the matte as long as the result, so that correct_cutout ' +
    'can correct it. Absent: it erases the image when the job ends.',
  keep:
    'What belongs to the subject, in pixels of the upright image: each shape is {"box": [x1, y1, x2, ' +
    'y2]} or {"line": [[x, y], ...], "radius": r}. Colours and connection decide the area around it.',
  erase: 'As keep, what does not belong to the subject. Erase wins over keep.',
};

const ENUMS: { readonly [field: string]: readonly string[] | undefined } = {
  output_format: [...TRANSPARENT_FORMATS, 'jpeg'],
  no_subject: ['fail'],
  ...Object.fromEntries(FINISHING_FIELDS.map(field => [field, rowOf(field).choice])),
};

const NUMBERS = { type: 'array', items: { type: 'number' } };
const SHAPES = {
  type: 'array',
  items: {
    type: 'object',
    properties: {
      box: NUMBERS,
      line: { type: 'array', items: NUMBERS },
      radius: { type: 'number' },
    },
  },
};

/**
 * Agents' schemas allow one type per field. A test of the REST API checks that all fields have
 * descriptions.
 */
function fieldsOf(described: DescribedFields, { models, corrections }: Offered) {
  const names = IMAGE_FIELDS.filter(name => corrections || name !== 'correctable');
  const entries = names.map(name => {
    const { type, description, examples } = described[name]!;
    const values = name === 'model' && models.length > 0 ? models : ENUMS[name];
    const valued = values ? { enum: values } : name !== 'model' && examples && { examples };
    return [name, { type: firstOf(type), description: WORDS[name] ?? description, ...valued }];
  });
  return Object.fromEntries(entries) as Record<string, object>;
}

/** Every conversation pays for these words, so the descriptions refer to remove_background. */
function correctionFieldsOf(described: DescribedFields): Record<string, object> {
  const entries = CORRECTION_FIELDS.map(name => {
    if (isHintList(name)) return [name, { ...SHAPES, description: WORDS[name] }];
    const values = ENUMS[name] && { enum: ENUMS[name] };
    const description = 'As in remove_background.';
    return [name, { type: firstOf(described[name]!.type), description, ...values }];
  });
  return Object.fromEntries(entries);
}

const firstOf = (type: string | readonly string[]) => [type].flat()[0];
