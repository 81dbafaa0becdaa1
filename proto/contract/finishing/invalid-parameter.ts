import { ContractError } from '../errors.ts';

/** @param wrong what is wrong with the field, without its name: "must be …" */
export function invalidParameter(field: string, wrong: string): ContractError {
  const fieldErrors = [{ field, detail: wrong }];
  return new ContractError('INVALID_PARAMETER', `${field} ${wrong}`, { fieldErrors });
}
