/** What the remove.bg interface refuses in its own words: its codes are not those of /v1. */
import { ContractError, type ErrorCode } from '#contract/errors.ts';

/** Codes that say more than the code of /v1 with the field's name. */
const OF_ITS_OWN = {
  missing_source: 'INVALID_IMAGE_SOURCE',
  multiple_sources: 'INVALID_IMAGE_SOURCE',
  failed_to_read_image: 'INVALID_IMAGE_SOURCE',
  multiple_bg_sources: 'INVALID_PARAMETER',
  roi_exceeds_bounds: 'INVALID_PARAMETER',
  roi_region_empty: 'INVALID_PARAMETER',
} as const satisfies Record<string, ErrorCode>;

export class RemovebgRefusal extends ContractError {
  readonly removebgCode: keyof typeof OF_ITS_OWN;

  /** @param field of the request, as this interface names it */
  constructor(code: keyof typeof OF_ITS_OWN, field: string, detail: string) {
    super(OF_ITS_OWN[code], detail, { fieldErrors: [{ field, detail }] });
    this.removebgCode = code;
  }
}
