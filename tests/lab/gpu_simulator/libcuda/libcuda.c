// SPDX-License-Identifier: GPL-3.0-or-later
/*
 * Stands in for NVIDIA's libcuda.so.1 on lab nodes: starts CUDA and tells what devices there are, but runs nothing on them.
 *
 * It answers from the state of the simulated nvidia-smi, as NVIDIA's documents say that the CUDA Driver API answers. The README
 * in the directory above tells which document says what, and what none says.
 *
 * Copyright (c) 2026 The hpcai.gpu_cluster developers
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Numbers and names as in the reference, descriptions as users of real GPUs report them. */
#define RESULTS(X) \
	X(CUDA_SUCCESS, 0, "no error") \
	X(CUDA_ERROR_INVALID_VALUE, 1, "invalid argument") \
	X(CUDA_ERROR_NOT_INITIALIZED, 3, "initialization error") \
	X(CUDA_ERROR_NO_DEVICE, 100, "no CUDA-capable device is detected") \
	X(CUDA_ERROR_INVALID_DEVICE, 101, "invalid device ordinal") \
	X(CUDA_ERROR_SYSTEM_NOT_READY, 802, "system not yet initialized") \
	X(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, 803, "system has unsupported display driver / cuda driver combination") \
	X(CUDA_ERROR_UNKNOWN, 999, "unknown error")
#define CONSTANT(name, number, description) name = number,
#define ROW(name, number, description) { number, #name, description },
typedef enum { RESULTS(CONSTANT) } CUresult;
typedef int CUdevice;
typedef struct { unsigned char bytes[16]; } CUuuid;
static const struct { int number; const char *name, *description; } results[] = { RESULTS(ROW) };

/* The first branch of the driver with a version of CUDA: release notes of the CUDA Toolkit. */
static const struct { int branch, cuda; } versions[] = {
	{ 580, 13000 }, { 575, 12090 }, { 570, 12080 }, { 565, 12070 }, { 560, 12060 }, { 555, 12050 }, { 550, 12040 }, { 545, 12030 },
	{ 535, 12020 }, { 530, 12010 }, { 525, 12000 }, { 520, 11080 }, { 515, 11070 }, { 510, 11060 }, { 0, 11040 }
};

/* What stands where in the state: "/gpus/0/mig/current" is "false". */
static struct { char path[64], value[128]; } facts[4096];
static size_t fact_count;
static int initialized, rebooted;
/* By their place in the state's list of GPUs. */
static int devices[64], device_count;

/* Reads a string or another scalar and returns what follows. Of an escape it keeps the character behind the backslash. */
static const char *scalar(const char *text, char *value, size_t size) {
	int quoted = *text == '"';
	size_t used = 0;
	for (text += quoted; *text && !strchr(quoted ? "\"" : ",:]} \t\r\n", *text); text++) {
		text += *text == '\\' && text[1];
		if (used + 1 < size)
			value[used++] = *text;
	}
	value[used] = 0;
	return text + (quoted && *text);
}

/* Notes all that is in a JSON value and returns what follows. */
static const char *walk(const char *text, char path[64]) {
	size_t length = strlen(path);
	text += strspn(text, " \t\r\n");
	if (*text != '{' && *text != '[') {
		if (fact_count == sizeof facts / sizeof *facts)
			return text + strlen(text);
		strcpy(facts[fact_count].path, path);
		return scalar(text, facts[fact_count++].value, sizeof facts->value);
	}
	int named = *text++ == '{';
	for (int number = 0; text += strspn(text, " \t\r\n,:"), *text && *text != '}' && *text != ']'; number++) {
		char key[32];
		snprintf(key, sizeof key, "%d", number);
		if (named) {
			text = scalar(text, key, sizeof key);
			text += strspn(text, " \t\r\n:");
		}
		snprintf(path + length, 64 - length, "/%s", key);
		text = walk(text, path);
		path[length] = 0;
	}
	return text + (*text != 0);
}

/* "" where there is none. */
static const char *fact(const char *form, ...) {
	char path[64];
	va_list words;
	va_start(words, form);
	vsnprintf(path, sizeof path, form, words);
	va_end(words);
	for (size_t i = 0; i < fact_count; i++)
		if (!strcmp(facts[i].path, path))
			return facts[i].value;
	return "";
}

static int listed(const char *fault, int gpu) {
	for (int i = 0; *fact("/faults/%s/%d", fault, i); i++)
		if (!strcmp(fact("/faults/%s/%d", fault, i), fact("/gpus/%d/index", gpu)))
			return 1;
	return 0;
}

/* A mode as nvidia-smi settles it: a boot makes what is pending effective, and from Hopper on MIG is forgotten. */
static int mode(int gpu, const char *name) {
	if (rebooted && !strcmp(name, "mig") && atof(fact("/gpus/%d/compute_cap", gpu)) >= 9)
		return 0;
	return !strcmp(fact("/gpus/%d/%s/%s", gpu, name, rebooted ? "pending" : "current"), "true");
}

static void read_file(const char *variable, const char *usual, char *text, size_t size) {
	FILE *file = fopen(getenv(variable) ? getenv(variable) : usual, "r");
	text[file ? fread(text, 1, size - 1, file) : 0] = 0;
	if (file)
		fclose(file);
}

static void read_state(void) {
	static char text[1 << 18];
	char path[64] = "", boot_id[64];
	read_file("GPU_SIMULATOR_STATE", "/var/lib/gpu-simulator/state.json", text, sizeof text);
	read_file("GPU_SIMULATOR_BOOT_ID", "/proc/sys/kernel/random/boot_id", boot_id, sizeof boot_id);
	boot_id[strcspn(boot_id, "\n")] = 0;
	fact_count = 0;
	walk(text, path);
	rebooted = strcmp(fact("/boot_id"), "null") && strcmp(fact("/boot_id"), boot_id);
}

/* Adds the GPU that an entry of CUDA_VISIBLE_DEVICES names, by its index or the beginning of its UUID. False: none, or not one. */
static int add(const char *entry) {
	int found = 0, last = 0;
	for (int gpu = 0; gpu < 64 && *fact("/gpus/%d/index", gpu); gpu++)
		if (strncmp(entry, "GPU-", 4) ? !strcmp(entry, fact("/gpus/%d/index", gpu))
					      : !strncmp(fact("/gpus/%d/uuid", gpu), entry, strlen(entry)))
			found++, last = gpu;
	for (int i = 0; i < device_count; i++)
		found += found && devices[i] == last;
	if (found != 1 || listed("missing", last) || mode(last, "mig"))
		return 0;
	devices[device_count++] = last;
	return 1;
}

static void enumerate(void) {
	const char *entries = getenv("CUDA_VISIBLE_DEVICES");
	char entry[64];
	device_count = 0;
	for (int gpu = 0; !entries && gpu < 64 && *fact("/gpus/%d/index", gpu); gpu++)
		add(fact("/gpus/%d/index", gpu));
	for (int more = entries != NULL; more; entries += strcspn(entries, ","), entries += *entries == ',') {
		snprintf(entry, sizeof entry, "%.*s", (int)strcspn(entries, ","), entries);
		more = add(entry);
	}
}

#define API __attribute__((visibility("default")))
API CUresult cuInit(unsigned int flags) {
	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (initialized)
		return CUDA_SUCCESS;
	read_state();
	usleep((useconds_t)(atof(fact("/faults/hang_s")) * 1e6));
	if (atoi(fact("/faults/cuda")))
		return (CUresult)atoi(fact("/faults/cuda"));
	/* What nvidia-smi ends with before it answers anything. */
	int code = strcmp(fact("/faults/exit_after_rows"), "true") ? atoi(fact("/faults/exit_code")) : 0;
	if (code == 18 || *fact("/faults/library_version"))
		return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
	if (code)
		return code == 9 ? CUDA_ERROR_NO_DEVICE : CUDA_ERROR_UNKNOWN;
	if (!strcmp(fact("/faults/fabric_manager_stopped"), "true"))
		return CUDA_ERROR_SYSTEM_NOT_READY;
	enumerate();
	for (int i = 0; i < device_count; i++)
		if (listed("lost", devices[i]) || listed("no_handle", devices[i]))
			return CUDA_ERROR_INVALID_DEVICE;
	initialized = device_count > 0;
	return initialized ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

API CUresult cuDriverGetVersion(int *version) {
	if (!version)
		return CUDA_ERROR_INVALID_VALUE;
	if (!initialized)
		read_state();
	int row = 0, branch = atoi(fact(*fact("/faults/library_version") ? "/faults/library_version" : "/driver_version"));
	while (versions[row].branch > branch)
		row++;
	*version = versions[row].cuda;
	return CUDA_SUCCESS;
}

static CUresult describe(CUresult error, const char **text, int name) {
	for (size_t i = 0; i < sizeof results / sizeof *results; i++)
		if (text && results[i].number == (int)error)
			return *text = name ? results[i].name : results[i].description, CUDA_SUCCESS;
	return text ? *text = NULL, CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuGetErrorName(CUresult error, const char **text) { return describe(error, text, 1); }
API CUresult cuGetErrorString(CUresult error, const char **text) { return describe(error, text, 0); }

/* What stands before every answer: is CUDA started, is there a place for the answer, is there such a device? */
#define CHECK(place, device) \
	if (!initialized) return CUDA_ERROR_NOT_INITIALIZED; \
	if (!(place)) return CUDA_ERROR_INVALID_VALUE; \
	if ((device) < 0 || (device) >= device_count) return CUDA_ERROR_INVALID_DEVICE

API CUresult cuDeviceGetCount(int *count) { CHECK(count, 0); return *count = device_count, CUDA_SUCCESS; }
API CUresult cuDeviceGet(CUdevice *device, int ordinal) { CHECK(device, ordinal); return *device = ordinal, CUDA_SUCCESS; }

API CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
	CHECK(name && length > 0, device);
	return snprintf(name, (size_t)length, "%s", fact("/gpus/%d/name", devices[device])), CUDA_SUCCESS;
}

API CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
	CHECK(bytes, device);
	return *bytes = (size_t)atol(fact("/gpus/%d/memory_mib", devices[device])) << 20, CUDA_SUCCESS;
}

/* The domain has four digits here and eight in nvidia-smi: 13 characters with the end. */
API CUresult cuDeviceGetPCIBusId(char *bus_id, int length, CUdevice device) {
	CHECK(bus_id && length >= 13, device);
	return snprintf(bus_id, 13, "%s", fact("/gpus/%d/bus_id", devices[device]) + 4), CUDA_SUCCESS;
}

API CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
	CHECK(uuid, device);
	const char *digits = fact("/gpus/%d/uuid", devices[device]) + strlen("GPU-");
	for (int i = 0; i < 16; i++, digits += 2)
		sscanf(digits += *digits == '-', "%2hhx", &uuid->bytes[i]);
	return CUDA_SUCCESS;
}
API CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device) __attribute__((alias("cuDeviceGetUuid_v2")));

API CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
	CHECK(value, device);
	int major = 0, minor = 0;
	sscanf(fact("/gpus/%d/compute_cap", devices[device]), "%d.%d", &major, &minor);
	switch (attribute) {
	case 32: return *value = mode(devices[device], "ecc"), CUDA_SUCCESS; /* CU_DEVICE_ATTRIBUTE_ECC_ENABLED */
	case 75: return *value = major, CUDA_SUCCESS; /* CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR */
	case 76: return *value = minor, CUDA_SUCCESS; /* CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR */
	default: return CUDA_ERROR_INVALID_VALUE;
	}
}
