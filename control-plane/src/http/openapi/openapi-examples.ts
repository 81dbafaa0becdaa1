/** Bodies as the OpenAPI document shows them; a test holds each against its schema. */

const JOB_ID = '6f1d2c1e-8b1a-4d0e-9a57-2f2b6c3d4e5f';
const BASE_URL = 'https://matting.example.com';
const STARTED_AT = '2026-05-04T09:30:00.120Z';
const FINISHED_AT = '2026-05-04T09:30:01.480Z';

export const queued = {
  job_id: JOB_ID,
  status: 'queued',
  created_at: '2026-05-04T09:30:00.000Z',
  started_at: null,
  finished_at: null,
  status_url: `${BASE_URL}/v1/matting/jobs/${JOB_ID}`,
  credits: { reserved: 1, charged: 0 },
};

export const handedOver = {
  ...queued,
  status: 'processing',
  started_at: STARTED_AT,
  sync_timeout: true,
};

const final = { ...queued, started_at: STARTED_AT, finished_at: FINISHED_AT };

export const succeeded = {
  ...final,
  status: 'succeeded',
  credits: { reserved: 0, charged: 1 },
  result: {
    url: `${BASE_URL}/v1/results/Jq0yq1bVZr0mY3Vd5m0l2s8qkJxv2m7b`,
    format: 'png',
    contentType: 'image/png',
    sizeBytes: 1_482_113,
    width: 2048,
    height: 1536,
    expiresAt: '2026-05-05T09:30:01.480Z',
  },
};

export const failed = {
  ...final,
  status: 'failed',
  credits: { reserved: 0, charged: 0 },
  error: {
    code: 'PROCESSING_FAILED',
    detail: 'the image cannot be decoded',
    retryable: false,
  },
};

const { result: _, ...withoutResult } = succeeded;
export const expired = { ...withoutResult, status: 'expired' };

export const notified = {
  ...succeeded,
  callback: {
    url: 'https://example.com/hooks/matting',
    status: 'delivered',
    attempts: 2,
    last_status_code: 204,
    last_attempt_at: '2026-05-04T09:30:06.730Z',
    next_attempt_at: null,
  },
};

export const requests = {
  url: { image_url: 'https://example.com/photo.jpg', output_format: 'webp' },
  // Whole, so that it can be tried out.
  base64: {
    image_base64:
      'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg' +
      'gg==',
  },
  callback: {
    image_url: 'https://example.com/photo.jpg',
    callback_url: 'https://example.com/hooks/matting',
    callback_secret: 'whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD',
  },
};

export const account = { credits: { available: 97, reserved: 3 } };

export const packages = {
  lists: [
    {
      unit: 'credit',
      currency: 'CNY',
      packages: [{ credits: 2500, price: 50, unit_price: '0.02' }],
    },
    {
      unit: 'image',
      currency: 'CNY',
      packages: [{ credits: 100, price: 10, unit_price: '0.1' }],
    },
  ],
};

export const keys = {
  keys: [
    {
      prefix: 'mk_3fJ2',
      name: 'shop backend',
      created_at: '2026-05-01T08:00:00.000Z',
      revoked_at: null,
    },
  ],
};

export const jobSucceeded = {
  type: 'matting.job.succeeded',
  timestamp: FINISHED_AT,
  job_id: JOB_ID,
  data: succeeded,
};

export const jobFailed = {
  type: 'matting.job.failed',
  timestamp: FINISHED_AT,
  job_id: JOB_ID,
  data: failed,
};
