/* The function of bcryptprimitives.dll that Rust's standard library calls, for versions of Wine
 * that lack it. */

unsigned char __stdcall SystemFunction036(void *bytes, unsigned long length);

__declspec(dllexport) int __stdcall ProcessPrng(unsigned char *bytes, unsigned long long length)
{
    while (length > 0) {
        unsigned long part = length < 65536 ? (unsigned long)length : 65536;
        SystemFunction036(bytes, part);
        bytes += part;
        length -= part;
    }
    return 1;
}
